#include "qft/parallel/action.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>

namespace qft::parallel {
namespace {

/// Micro-batches of a full group.
int group_of(const Schedule& schedule, int most) {
  return static_cast<int>(std::clamp<std::int64_t>(schedule.group, 1, std::max(1, most)));
}

class Builder {
 public:
  /// `bottom`: lowest block that gradients reach; num_units(): none.
  Builder(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& micro_batches, int bottom)
      : spec_(spec),
        reference_(schedule.reference),
        group_(group_of(schedule, micro_batches.most)),
        here_(micro_batches.here),
        most_(micro_batches.most),
        bottom_(bottom) {
    QFT_ASSERT(schedule.group >= 1 && most_ >= here_ && here_ >= 0, "group {}, at most {} micro-batches, here {}", schedule.group,
               most_, here_);
  }

  void acquire(int block, GatherPurpose purpose) {
    for (const int unit : spec_.units_of_block(block))
      list_.push_back({.kind = ActionKind::acquire, .target = unit, .purpose = purpose});
  }
  void release(int block) {
    for (const int unit : spec_.units_of_block(block)) list_.push_back({ActionKind::release, unit});
  }
  /// The reference runs first: its log-probabilities must exist before the policy's head.
  void forward(int block, int group) {
    const bool head = block == spec_.head_unit();
    for (int m = first(group); m < last(group); ++m) {
      if (reference_)
        list_.push_back({.kind = ActionKind::forward,
                         .target = block,
                         .micro = m,
                         .first = block == 0,
                         .last = head,
                         .lane = Lane::reference});
      list_.push_back({.kind = ActionKind::forward,
                       .target = block,
                       .micro = m,
                       .first = block == 0,
                       .last = head && bottom_ > block,
                       .needs_gradient = block >= bottom_});
    }
    if (spec_.has_experts(block)) join_exchange(block, group);
  }
  /// Backward starts with the last micro-batch: its activations are most likely still in the cache.
  void backward(int block, int group) {
    for (int m = last(group) - 1; m >= first(group); --m)
      list_.push_back({.kind = ActionKind::backward,
                       .target = block,
                       .micro = m,
                       .last = block == bottom_,
                       .needs_gradient = block > bottom_});
  }
  void reduce(int block) {
    if (spec_.units[static_cast<std::size_t>(block)].trainable_numel > 0) list_.push_back({ActionKind::reduce, block});
  }
  void vote() { list_.push_back({ActionKind::vote}); }
  void step() { list_.push_back({ActionKind::step}); }
  ActionList take() { return std::move(list_); }

 private:
  int first(int group) const { return std::min(group * group_, here_); }
  int last(int group) const { return last_of(group, here_); }
  int last_of(int group, int micro_batches) const { return std::min((group + 1) * group_, micro_batches); }
  void join_exchange(int block, int group) {
    const int passes = last_of(group, most_) - group * group_ - (last(group) - first(group));
    for (int i = 0; i < passes; ++i) {
      if (reference_) list_.push_back({.kind = ActionKind::join_exchange, .target = block, .lane = Lane::reference});
      list_.push_back({ActionKind::join_exchange, block});
    }
  }

  const model::ModelSpec& spec_;
  bool reference_;
  int group_, here_, most_;
  int bottom_;
  ActionList list_;
};

}  // namespace

std::string describe(const Action& action, const model::ModelSpec& spec) {
  static constexpr const char* kNames[] = {"gather",        "gather_frozen", "acquire", "forward", "backward",
                                           "join_exchange", "release",       "reduce",  "vote",    "step"};
  const char* name = kNames[static_cast<std::size_t>(action.kind)];
  if (action.target < 0) return name;
  const std::string& unit = spec.units.at(static_cast<std::size_t>(action.target)).name;
  if (action.micro < 0) return fmt::format("{}({})", name, unit);
  return fmt::format("{}({}, micro {}{})", name, unit, action.micro, action.lane == Lane::reference ? ", reference" : "");
}

Schedule make_schedule(const Sharding& sharding) {
  const bool by_micro_batch = sharding.reduction_order == ReductionOrder::by_micro_batch;
  return {.reduce_every_group = sharding.strategy.reduce_every_group() || by_micro_batch,
          .reshard_after_forward = sharding.strategy.reshard_after_forward,
          .offload_inputs = sharding.offload.activations};
}

int groups_of(const Schedule& schedule, int most) {
  const int group = group_of(schedule, most);
  return (most + group - 1) / group;
}

int groups_per_vote(double seconds, int groups) {
  constexpr double kLongStep = 4.0, kBetweenVotes = 2.0;
  if (seconds < kLongStep) return 0;
  return static_cast<int>(std::clamp(std::ceil(kBetweenVotes * groups / seconds), 1.0, std::max(1.0, double(groups))));
}

ActionList training_actions(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& micro_batches) {
  const int top = spec.head_unit();
  const int bottom = spec.lowest_trained_block();
  Builder build(spec, schedule, micro_batches, bottom);
  // Forward turns around at the head: its backward needs the same weights at once.
  const auto stays = [&](int block) { return block >= bottom && (block == top || !schedule.reshard_after_forward); };
  const int groups = groups_of(schedule, micro_batches.most);
  for (int group = 0; group < groups; ++group) {
    const bool last_group = group + 1 == groups;
    if (micro_batches.groups_per_vote > 0 && group % micro_batches.groups_per_vote == 0) build.vote();
    for (int block = 0; block <= top; ++block) {
      build.acquire(block, GatherPurpose::forward);
      build.forward(block, group);
      if (!stays(block) && !(block == 0 && spec.ties_head())) build.release(block);
    }
    for (int block = top; block >= bottom; --block) {
      if (!stays(block)) build.acquire(block, GatherPurpose::backward);
      build.backward(block, group);
      // A tied embedding is reduced with block 0, its last user: units are reduced under their own block's index.
      if (last_group || schedule.reduce_every_group) build.reduce(block);
      build.release(block);
      if (block == top && spec.ties_head() && !stays(0)) build.release(0);
    }
  }
  build.step();
  return build.take();
}

ActionList evaluation_actions(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& micro_batches) {
  Builder build(spec, schedule, micro_batches, spec.num_units());
  const int groups = groups_of(schedule, micro_batches.most);
  for (int group = 0; group < groups; ++group)
    for (int block = 0; block < spec.num_units(); ++block) {
      build.acquire(block, GatherPurpose::forward);
      build.forward(block, group);
      if (block == 0 && spec.ties_head()) continue;
      build.release(block);
      if (block == spec.head_unit() && spec.ties_head()) build.release(0);
    }
  return build.take();
}

}  // namespace qft::parallel

// Builds action lists, and inserts prefetches by simulating which units are held and which are prefetched.
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

class PrefetchPlanner {
 public:
  PrefetchPlanner(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget)
      : list_(list),
        units_(units),
        prefetch_budget_(prefetch_budget),
        trains_(!list.empty() && list.back().kind == ActionKind::step),
        states_(units.size()) {}

  ActionList run() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      const Action& action = list_[i];
      const bool weights = action.kind == ActionKind::acquire || action.kind == ActionKind::release;
      if (!weights || bytes(action.target) == 0) {
        out_.push_back(action);
        continue;
      }
      if (next_ <= i) next_ = i;
      if (action.kind == ActionKind::acquire) {
        acquire(action, i);
      } else {
        release(action);
      }
      prefetch();
    }
    return std::move(out_);
  }

 private:
  struct State {
    int held = 0;
    int prefetched = 0;            ///< number of later acquires that the prefetch serves
    bool dropped_release = false;  ///< the last release was dropped, so the next acquire must be dropped too
    bool prefetched_next = false;  ///< prefetched for the next step
  };
  State& state(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  std::int64_t bytes(int unit) const { return units_[static_cast<std::size_t>(unit)].total(); }

  void acquire(const Action& action, std::size_t index) {
    State& s = state(action.target);
    if (index >= next_) {  // not prefetched: the budget was used up
      next_ = index + 1;
      if (s.held == 0) out_.push_back(gather_for(action, ActionKind::gather));
    } else if (--s.prefetched == 0) {
      waiting_ -= bytes(action.target);
    }
    ++s.held;
    if (s.dropped_release) {
      s.dropped_release = false;
    } else {
      out_.push_back(action);
    }
  }

  void release(const Action& action) {
    State& s = state(action.target);
    QFT_ASSERT(s.held > 0, "unit {} is released but not held", action.target);
    if (--s.held == 0 && s.prefetched > 0) {
      s.dropped_release = true;
    } else {
      out_.push_back(action);
    }
  }

  static Action gather_for(const Action& acquire, ActionKind kind) {
    return {.kind = kind, .target = acquire.target, .purpose = acquire.purpose};
  }

  bool fits(std::int64_t more) const { return waiting_ == 0 || waiting_ + more <= prefetch_budget_; }

  void prefetch() {
    for (; next_ < list_.size(); ++next_) {
      const Action& ahead = list_[next_];
      if (ahead.kind != ActionKind::acquire || bytes(ahead.target) == 0) continue;
      State& s = state(ahead.target);
      if (s.prefetched == 0) {
        if (!fits(bytes(ahead.target))) return;
        waiting_ += bytes(ahead.target);
        if (s.held == 0) out_.push_back(gather_for(ahead, ActionKind::gather));
      }
      ++s.prefetched;
    }
    if (trains_) prefetch_next_step();
  }

  /// Prefetches frozen weights, which no step changes, in the order of their first use. Units still in use wait for their
  /// release.
  void prefetch_next_step() {
    for (; next_step_ < list_.size(); ++next_step_) {
      const Action& ahead = list_[next_step_];
      if (ahead.kind != ActionKind::acquire) continue;
      State& s = state(ahead.target);
      const std::int64_t frozen = units_[static_cast<std::size_t>(ahead.target)].frozen;
      if (s.prefetched_next || frozen == 0) continue;
      if (s.held > 0 || s.prefetched > 0 || !fits(frozen)) return;
      waiting_ += frozen;
      s.prefetched_next = true;
      out_.push_back(gather_for(ahead, ActionKind::gather_frozen));
    }
  }

  const ActionList& list_;
  const std::vector<GatheredBytes>& units_;
  std::int64_t prefetch_budget_;
  bool trains_;  ///< a list of the same kind follows: its first gathers can be prefetched at the end of this one
  std::vector<State> states_;
  std::size_t next_ = 0;       ///< the first action of the list not yet examined for prefetching
  std::size_t next_step_ = 0;  ///< the same index in the list that follows
  std::int64_t waiting_ = 0;   ///< bytes of units that are prefetched but not acquired yet
  ActionList out_;
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

ActionList insert_prefetches(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget) {
  return PrefetchPlanner(list, units, prefetch_budget).run();
}

}  // namespace qft::parallel

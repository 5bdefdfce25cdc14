#include "qft/plan/simulation.h"

#include "qft/parallel/optimizer_param.h"
#include "qft/parallel/weight_store.h"

#include <array>
#include <deque>
#include <numeric>
#include <optional>

#include "element_size.h"
#include "exchanges.h"
#include "gathered_set.h"
#include "group_sizes.h"
#include "wire.h"

namespace qft::plan {
namespace {

using parallel::Action;
using parallel::ActionKind;

/// The links of a rank: to ranks with other slices, to copies, to host memory, and along the tensor and the context axis.
constexpr std::size_t kLinks = 5;

/// Bytes that a rank receives of a buffer that a group shares.
double received(double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks;
}

class Simulator {
 public:
  Simulator(const RunPlan& run, const Machine& machine)
      : run_(run),
        machine_(machine),
        slices_(slices_of(run.sharding)),
        copies_(copies_of(run.sharding)),
        tensor_(link_of(machine, run.sharding.tensor_ranks, 1)),
        context_(link_of(machine, run.sharding.context_ranks, run.sharding.tensor_ranks)),
        shard_(link_of(machine, slices_, run.sharding.tensor_ranks)),
        replicas_(link_of(machine, copies_, run.sharding.tensor_ranks * slices_)),
        owners_(link_of(machine, slices_ * run.sharding.tensor_ranks, 1)),
        host_({machine.host_device_gb_s * 1e9, 0}),
        units_(gathered_bytes(run)),
        gathered_set_(units_),
        training_(run.schedule),
        arrival_(run.spec->units.size(), 0.0),
        buckets_(parallel::gradient_buckets(*run.spec, run.precision.grad)) {
    prefetch_budget_ = prefetch_budget(run, units_);
    training_.reduce_every_group = run.sharding.strategy.reduce_every_group();  // partial sums of a tree stay on the rank
  }

  double now() const { return now_; }
  const StepTime& total() const { return total_; }
  StepTime& total() { return total_; }
  /// Busy seconds of each link.
  std::array<double, kLinks> busy() const {
    return {shard_.busy() + owners_.busy(), replicas_.busy(), host_.busy(), tensor_.busy(), context_.busy()};
  }
  double alone() const {
    double all = agreed_;
    for (const Wire* wire : {&shard_, &replicas_, &host_, &tensor_, &context_, &owners_}) all += wire->alone();
    return all;
  }

  /// Plays a training step.
  void play(const StepShape& step) {
    open_units_.assign(static_cast<std::size_t>(buckets_.empty() ? 0 : *std::max_element(buckets_.begin(), buckets_.end()) + 1),
                       0);
    for (const int bucket : buckets_)
      if (bucket >= 0) ++open_units_[static_cast<std::size_t>(bucket)];
    total_.tokens += static_cast<double>(step.tokens);
    perform(parallel::training_actions(*run_.spec, training_, counts(step.micros, step.max_micro_batches)), step.micros);
  }

  /// Plays a forward pass without gradients.
  void pass(const std::vector<MicroShape>& micros, std::int64_t max_micro_batches) {
    if (micros.empty()) return;
    perform(parallel::evaluation_actions(*run_.spec, run_.schedule, counts(micros, max_micro_batches)), micros);
  }

 private:
  const model::UnitSpec& unit(int index) const { return run_.spec->units[static_cast<std::size_t>(index)]; }

  static parallel::MicroBatches counts(const std::vector<MicroShape>& micros, std::int64_t most) {
    return {.here = static_cast<int>(micros.size()), .most = static_cast<int>(most)};
  }

  void perform(const parallel::ActionList& list, const std::vector<MicroShape>& micros) {
    micros_ = &micros;
    for (const Action& action : parallel::insert_prefetches(list, units_, prefetch_budget_)) perform(action);
  }

  void perform(const Action& action) {
    switch (action.kind) {
      case ActionKind::gather:
      case ActionKind::gather_frozen:
        gather(action);
        break;
      case ActionKind::acquire:
        acquire(action);
        break;
      case ActionKind::release:
        gathered_set_.run(action);
        break;
      case ActionKind::forward:
        compute(forward_of(action));
        exchange(exchanges_of(run_, action, micro(action)));
        break;
      case ActionKind::backward:
        compute(backward_work(*run_.spec, action.target, micro(action), run_.precision.compute, run_.schedule.recompute,
                              action.needs_gradient, run_.objective.kind));
        exchange(exchanges_of(run_, action, micro(action)));
        break;
      case ActionKind::reduce:
        reduce(action.target);
        break;
      case ActionKind::join_exchange:
      case ActionKind::vote:
        break;
      case ActionKind::step:
        finish();
        break;
    }
  }

  const MicroShape& micro(const Action& action) const { return (*micros_)[static_cast<std::size_t>(action.micro)]; }

  /// The reference lane skips the adapter.
  Work forward_of(const Action& action) const {
    Work work = forward_work(*run_.spec, action.target, micro(action), run_.precision.compute, run_.objective.kind);
    if (action.lane == parallel::Lane::reference) work.narrow = 0;
    return work;
  }

  /// Context ranks divide a micro-batch's rows evenly; uneven heads are counted as even.
  void compute(const Work& work) { compute(seconds(work, machine_, run_.precision.compute) / run_.sharding.context_ranks); }
  void compute(double takes) {
    total_.compute += takes;
    const Wire& busiest = shard_.free() > replicas_.free() ? shard_ : replicas_;
    const double share = std::max(0.05, 1.0 - machine_.compute_s_per_gb * 1e-9 * busiest.link().bytes_per_second);
    now_ = finish_of(now_, takes, busiest.free(), share);
  }

  void wait_until(double time, double& counter) {
    counter += std::max(0.0, time - now_);
    now_ = std::max(now_, time);
  }

  /// Compute waits for the whole exchange.
  void exchange(const Exchanges& all) {
    total_.tensor_bytes += all.tensor.bytes;
    total_.context_bytes += all.context.bytes;
    wait_until(tensor_.start(now_, all.tensor.bytes, all.tensor.hops), total_.tensor_wait);
    wait_until(context_.start(now_, all.context.bytes, all.context.hops), total_.context_wait);
  }

  /// Waits for a unit. Decodes its quantised part: reads the stored form and writes the decoded one.
  void acquire(const Action& action) {
    const auto decoded = static_cast<double>(gather(action).decoded);
    wait_until(arrival_[static_cast<std::size_t>(action.target)], total_.gather_wait);
    const Work decoding{.bytes = decoded + static_cast<double>(unit(action.target).packed_bytes)};
    if (decoded > 0) compute(seconds(decoding, machine_, run_.precision.compute));
  }

  /// Gathers a unit from the other ranks; with offloading first copies this rank's slice from host memory (the whole unit if
  /// weights are not sharded).
  parallel::GatheredBytes gather(const Action& action) {
    const parallel::GatheredBytes brought = gathered_set_.run(action);
    const auto bytes = static_cast<double>(brought.gathered());
    if (bytes == 0.0) return brought;
    double sets_out = now_;
    if (run_.sharding.offload.weights) sets_out = host_.start(now_, run_.sharding.strategy.weights ? bytes / slices_ : bytes, 0);
    double& arrival = arrival_[static_cast<std::size_t>(action.target)];
    arrival = std::max(arrival, sets_out);
    if (slices_ > 1 && run_.sharding.strategy.weights) arrival = std::max(arrival, all_gather(sets_out, bytes));
    return brought;
  }

  double all_gather(double at, double bytes) {
    const double travels = received(bytes, slices_);
    total_.gather_bytes += travels;
    return shard_.start(at, travels, slices_ - 1);
  }

  double all_reduce(Wire& wire, double bytes, int ranks) {
    total_.reduce_bytes += 2 * received(bytes, ranks);
    return wire.start(now_, 2 * received(bytes, ranks), 2 * (ranks - 1));
  }

  double wide_item() const { return size_of(run_.precision.grad == at::kDouble ? at::kDouble : at::kFloat); }

  void reduce(int index) {
    const auto elements = static_cast<double>(unit(index).trainable_numel);
    if (!run_.sharding.strategy.sharded()) {
      const auto bucket = static_cast<std::size_t>(buckets_[static_cast<std::size_t>(index)]);
      if (--open_units_[bucket] == 0) reduce_bucket(static_cast<int>(bucket));
      return;
    }
    const double padded = static_cast<double>(padded_numel(unit(index).trainable_numel, slices_));
    double done = now_;
    if (slices_ > 1) {
      const double travels = received(padded * wide_item(), slices_);
      total_.reduce_bytes += travels;
      done = shard_.start(now_, travels, slices_ - 1);
    }
    if (run_.sharding.offload.optimizer) done = host_.start(done, elements / slices_ * wide_item(), 0);
    reductions_.push_back(done);
    while (run_.sharding.strategy.gradients && reductions_.size() > parallel::kMaxReductionsInFlight) complete_oldest();
  }

  void reduce_bucket(int bucket) {
    if (copies_ <= 1) return;
    double bytes = 0;
    for (std::size_t u = 0; u < buckets_.size(); ++u)
      if (buckets_[u] == bucket) bytes += static_cast<double>(run_.spec->units[u].trainable_numel) * wide_item();
    reductions_.push_back(all_reduce(replicas_, bytes, copies_));
  }

  void complete_oldest() {
    wait_until(reductions_.front(), total_.reduce_wait);
    reductions_.pop_front();
  }

  /// Waits for the reductions, sums over replicas, the ranks' agreement, the update, and the gathers of updated weights.
  void finish() {
    while (!reductions_.empty()) complete_oldest();
    exchange(exchanges_of_update(run_));
    double trainable = 0;
    for (const auto& u : run_.spec->units) trainable += static_cast<double>(u.trainable_numel);
    const double owned = run_.sharding.strategy.optimizer ? trainable / slices_ : trainable;
    if (run_.sharding.strategy.sharded() && copies_ > 1)
      wait_until(all_reduce(replicas_, owned * wide_item(), copies_), total_.reduce_wait);
    const Link& slowest = copies_ > 1 ? replicas_.link() : slices_ > 1 ? shard_.link() : tensor_.link();
    if (slices_ * copies_ * run_.sharding.tensor_ranks > 1) {  // the ranks agree on three numbers
      agreed_ += 2 * slowest.latency;
      wait_until(now_ + 2 * slowest.latency, total_.reduce_wait);
    }
    update(owned);
    if (run_.sharding.strategy.weights || slices_ == 1 || run_.sharding.offload.weights) return;
    for (std::size_t u = 0; u < arrival_.size(); ++u)
      if (const auto n = run_.spec->units[u].trainable_numel; n > 0)
        arrival_[u] = all_gather(now_, static_cast<double>(padded_numel(n, slices_)) * size_of(run_.precision.compute));
  }

  /// The rule reads and writes gradient, master and state, and writes the weight; the norm reads the gradient once more.
  void update(double elements) {
    const auto& p = run_.precision;
    double state = 0, trainable = 0, whole = 0, operations = 0;
    for (const auto& unit : run_.spec->units) {
      trainable += static_cast<double>(unit.trainable_numel);
      state += static_cast<double>(
          parallel::state_bytes(*run_.rule, run_.hyper, p, unit, unit.trainable_numel, run_.sharding.tensor_ranks));
      for (const auto& param : unit.params) {
        const optim::Param subject = parallel::optimizer_param(param);
        if (!param.trainable || run_.rule->whole == nullptr || !run_.rule->whole(subject)) continue;
        whole += static_cast<double>(param.numel);
        if (run_.rule->operations != nullptr) operations += run_.rule->operations(subject) / run_.sharding.tensor_ranks;
      }
    }
    const double share = trainable > 0 ? elements / trainable : 0;
    const double bytes = elements * (3 * size_of(p.grad) + 2 * size_of(p.master) + size_of(p.compute)) + share * 2 * state;
    compute(bytes / (machine_.memory_gb_s * 1e9));
    send_to_owners(share * whole * size_of(p.grad), share * operations);
  }

  /// Gradients of whole parameters travel to their owners, which compute the update, and back.
  void send_to_owners(double bytes, double operations) {
    if (const int ranks = slices_ * run_.sharding.tensor_ranks; ranks > 1 && bytes > 0) {
      const double travels = 2 * received(bytes, ranks);
      total_.reduce_bytes += travels;
      wait_until(owners_.start(now_, travels, 2), total_.reduce_wait);
    }
    if (operations > 0) compute(operations / machine_.matmul_flops(run_.precision.compute));
  }

  const RunPlan& run_;
  const Machine& machine_;
  int slices_, copies_;
  Wire tensor_, context_, shard_, replicas_, owners_, host_;
  std::vector<parallel::GatheredBytes> units_;
  GatheredSet gathered_set_;
  parallel::Schedule training_;
  std::vector<double> arrival_;  ///< by unit: end of its gather in flight
  std::vector<int> buckets_, open_units_;
  std::deque<double> reductions_;
  const std::vector<MicroShape>* micros_ = nullptr;
  std::int64_t prefetch_budget_ = 0;
  double now_ = 0, agreed_ = 0;  ///< `agreed_`: seconds of the ranks' agreement
  StepTime total_;
};

}  // namespace

StepTime simulate(const RunPlan& run, const Machine& machine, const Workload& workload) {
  std::deque<Simulator> simulators;  // the policy's and, if it has a separate model, the reference's, which runs first
  const std::optional<RunPlan> other = run.reference_model ? std::optional(reference_passes(run)) : std::nullopt;
  if (other) simulators.emplace_back(*other, machine);
  Simulator& policy = simulators.emplace_back(run, machine);
  const auto play = [&](const StepShape& step) {
    if (other)
      for (const auto* micros : {&step.before, &step.micros}) simulators.front().pass(*micros, step.max_micro_batches);
    policy.pass(step.before, step.max_micro_batches);
    policy.play(step);
  };
  const auto sum_of = [&](auto value) {
    return std::accumulate(simulators.begin(), simulators.end(), 0.0,
                           [&](double sum, const Simulator& p) { return sum + value(p); });
  };
  const auto now = [](const Simulator& p) { return p.now(); };
  const auto alone = [](const Simulator& p) { return p.alone(); };
  const auto busy_of = [&](std::size_t link) { return sum_of([link](const Simulator& p) { return p.busy()[link]; }); };
  const auto links = [&] {
    std::array<double, kLinks> all{};
    for (std::size_t link = 0; link < kLinks; ++link) all[link] = busy_of(link);
    return all;
  };
  play(workload.steps.front());  // ends with frozen weights in flight, as every step does
  for (Simulator& p : simulators) p.total() = {};
  const double start = sum_of(now), alone_before = sum_of(alone);
  const auto busy_before = links();
  const bool others = workload.steps.size() > 1;
  for (std::size_t i = others ? 1 : 0; i < workload.steps.size(); ++i) play(workload.steps[i]);
  StepTime t;
  constexpr std::array kSums = {&StepTime::compute,      &StepTime::gather_wait,  &StepTime::reduce_wait,
                                &StepTime::tensor_wait,  &StepTime::context_wait, &StepTime::gather_bytes,
                                &StepTime::reduce_bytes, &StepTime::tensor_bytes, &StepTime::context_bytes,
                                &StepTime::tokens};
  for (double StepTime::* part : kSums) t.*part = sum_of([&](const Simulator& p) { return p.total().*part; });
  t.step = sum_of(now) - start;
  t.transfers = sum_of(alone) - alone_before;
  const auto busy = links();
  for (std::size_t link = 0; link < busy.size(); ++link) t.wire = std::max(t.wire, busy[link] - busy_before[link]);
  const auto steps = static_cast<double>(others ? workload.steps.size() - 1 : 1);
  for (double StepTime::* part : kSums) t.*part /= steps;
  for (double* value : {&t.step, &t.wire, &t.transfers}) *value /= steps;
  return t;
}

}  // namespace qft::plan

#include "qft/parallel/executor.h"

#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/trace.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"
#include "qft/device/stream_trace.h"
#include "qft/device/wait_check.h"
#include "qft/parallel/out_of_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "acquired_units.h"
#include "head_pass.h"
#include "in_flight.h"
#include <c10/core/InferenceMode.h>

namespace qft::parallel {
namespace {

/// Adds the duration of a scope to a counter of computation, and the exchanges in it to another one.
class ComputationWatch {
 public:
  ComputationWatch(double& computation, double& exchange, const model::Transformer& transformer)
      : watch_(computation), computation_(computation), exchange_(exchange), transformer_(transformer) {}
  ~ComputationWatch() {
    const double exchanged = transformer_.exchange_seconds() - before_;
    computation_ -= exchanged;
    exchange_ += exchanged;
  }
  ComputationWatch(const ComputationWatch&) = delete;
  ComputationWatch& operator=(const ComputationWatch&) = delete;

 private:
  Stopwatch watch_;
  double &computation_, &exchange_;
  const model::Transformer& transformer_;
  double before_ = transformer_.exchange_seconds();
};

/// The host waits for its device only in the actions in which the ranks agree.
bool waits(const Action& action) {
  return action.kind == ActionKind::vote || action.kind == ActionKind::step;
}

}  // namespace

/// State of one run of a list.
struct Executor::Pass {
  std::span<const model::MicroInput> micros;
  HeadPass& head;                        ///< of the policy
  HeadPass& reference_head;              ///< of the reference lane
  const Objective* objective = nullptr;  ///< set in training
  model::RandomPass random = {};
  StopRequested stop_requested = {};
  double loss_scale = 1.0;
  MicroRange range = {};
  std::vector<at::Tensor>* sums = nullptr;  ///< the objective's sums, by micro-batch; set in training
  double started = steady_seconds();
  StepResult result = {};
  bool training() const { return objective != nullptr; }
};

Executor::Executor(model::Transformer& transformer, WeightStore& store, const Groups& groups, const Schedule& schedule,
                   const model::RandomPass& random, Diagnostics diagnostics)
    : transformer_(transformer),
      store_(store),
      groups_(groups),
      random_(random),
      diagnostics_(std::move(diagnostics)),
      units_(std::make_unique<AcquiredUnits>(transformer.spec(), store)),
      in_flight_(std::make_unique<InFlight>(transformer, ActivationPolicy{schedule.recompute, schedule.offload_inputs})),
      graphs_(schedule.graphs ? std::make_unique<LayerGraphs>(transformer) : nullptr) {
  QFT_ASSERT(!schedule.graphs || (random.lora_dropout == 0.0 && !schedule.offload_inputs),
             "graphs support neither LoRA dropout nor offloaded activations");
  QFT_ASSERT(!schedule.graphs || (transformer.tensor().alone() && transformer.context().alone()),
             "graphs record no exchanges between ranks");
  QFT_ASSERT(schedule.recompute || !schedule.offload_inputs, "offloading layer inputs needs recomputation");
}

Executor::~Executor() = default;

StepResult Executor::train(const ActionList& list, std::span<const model::MicroInput> micros, const Objective& objective,
                           std::uint64_t step, const StopRequested& stop_requested, double loss_scale, const MicroRange& range) {
  QFT_ASSERT(range.total == 0 || range.count == static_cast<std::int64_t>(micros.size()), "{} micro-batches, not {}",
             micros.size(), range.count);
  ReferenceLane lane(objective.reference_rows(), micros.size());
  std::vector<at::Tensor> sums(micros.size());
  const auto head = training_head(objective, loss_scale, lane, sums);
  Pass pass{micros, *head, lane, &objective, random_, stop_requested, loss_scale, range, &sums};
  pass.random.step = step;
  store_.start_step(range);
  interpret(list, pass);
  return pass.result;
}

void Executor::evaluate(const ActionList& list, std::span<const model::MicroInput> micros, const ObserveLogprobs& observe,
                        const Objective* objective, std::optional<std::uint64_t> training_step) {
  ReferenceLane lane(objective != nullptr && objective->reference_rows(), micros.size());
  const auto head = evaluation_head(objective, observe, lane);
  Pass pass{.micros = micros, .head = *head, .reference_head = lane};
  if (training_step) {
    pass.random = random_;
    pass.random.step = *training_step;
  }
  interpret(list, pass);
}

std::vector<at::Tensor> Executor::head_rows(const ActionList& list, std::span<const model::MicroInput> micros) {
  std::vector<at::Tensor> rows(micros.size());
  ReferenceLane lane(/*rows=*/false, micros.size());
  const auto head = rows_head(rows);
  Pass pass{.micros = micros, .head = *head, .reference_head = lane};
  interpret(list, pass);
  return rows;
}

void Executor::interpret(const ActionList& list, Pass& pass) {
  const c10::InferenceMode no_autograd;
  for (const auto& in : pass.micros)
    transformer_.ensure_positions(graphs_ && pass.training() ? graph_shape_of(in).tokens : in.sequences.max_length);
  const Action* current = nullptr;
  const std::function<std::string()> where = [&] {
    return current == nullptr ? "the start of a step" : describe(*current, transformer_.spec());
  };
  const device::Stream stream = device::Stream::current(transformer_.device());
  const std::function<void()> perform_current = [&] {
    const trace::Scope on_host(trace::kMainThread, where);
    const device::StreamSpan on_device(stream, "stream: compute", where);
    perform(*current, pass);
    store_.poll();  // MPI progresses only inside its calls
  };
  const auto perform_all = [&] {
    for (const Action& action : list) {
      current = &action;
      pass.training() && !waits(action) ? without_waits(where, perform_current) : perform_current();
      if (pass.result.abandoned) return;
      activity::tick();
    }
  };
  explain_out_of_memory(perform_all, where, [&] { return memory_held(); }, diagnostics_.memory_advice);
}

void Executor::perform(const Action& action, Pass& pass) {
  switch (action.kind) {
    case ActionKind::gather:
      return store_.gather(action.target, action.purpose);
    case ActionKind::gather_frozen:
      return store_.gather(action.target, action.purpose, /*frozen_only=*/true);
    case ActionKind::acquire:
      return acquire(action);
    case ActionKind::forward:
      return forward(action, pass);
    case ActionKind::backward:
      return backward(action, pass);
    case ActionKind::join_exchange:
      return gather_experts(action.target, {});
    case ActionKind::release:
      return store_.release(action.target);
    case ActionKind::reduce:
      return reduce(action.target);
    case ActionKind::vote:
      return vote(pass);
    case ActionKind::step:
      return step(pass);
  }
}

void Executor::acquire(const Action& action) {
  const Stopwatch watch(times_.gather);
  units_->acquire(action.target, action.purpose);
}

void Executor::gather_experts(int unit, std::span<const std::int64_t> begins) {
  const Stopwatch watch(times_.gather);
  store_.gather_experts(unit, begins);
}

void Executor::forward(const Action& action, Pass& pass) {
  const ComputationWatch watch(times_.forward, times_.exchange, transformer_);
  MicroInFlight& micro = action.first ? open(action, pass) : in_flight_->at(action.micro, action.lane);
  if (action.target == 0) {
    transformer_.embedding_forward(units_->embedding(BindMode::weights), micro.input(), micro.x());
    if (action.lane == Lane::policy)
      transformer_.add_noise(pass.micros[static_cast<std::size_t>(action.micro)], pass.random, micro.x());
  } else if (action.target == transformer_.spec().head_unit()) {
    if (action.lane == Lane::policy && pass.training())
      micro.input().routing.add_up(transformer_.tensor(), transformer_.context());
    (action.lane == Lane::reference ? pass.reference_head : pass.head).forward(head_block(action, micro, pass));
  } else {
    forward_layer(action, micro, pass);
  }
  if (action.last) micro.close();
}

void Executor::backward(const Action& action, Pass& pass) {
  const ComputationWatch watch(times_.backward, times_.exchange, transformer_);
  MicroInFlight& micro = in_flight_->at(action.micro, action.lane);
  if (action.target == 0) {
    transformer_.embedding_backward(units_->embedding(BindMode::gradients), micro.input(), micro.g());
  } else if (action.target == transformer_.spec().head_unit()) {
    pass.head.backward(head_block(action, micro, pass));
  } else {
    backward_layer(action, micro, pass);
  }
  if (action.last) micro.close();
}

void Executor::reduce(int unit) {
  const Stopwatch watch(times_.reduce);
  store_.reduce(unit);
}

void Executor::vote(Pass& pass) {
  // Queued device work cannot be abandoned, and the host runs ahead of the device: wait for it first.
  device::Event done(transformer_.device());
  done.record(device::Stream::current(transformer_.device()));
  done.synchronize();
  std::int32_t votes = pass.stop_requested && pass.stop_requested(/*step_done=*/false) ? 1 : 0;
  groups_.all().all_reduce(&votes, 1, DType::i32);
  if (votes == 0) return;
  store_.abandon_step();
  pass.result = {.stop_requests = votes, .abandoned = true};
}

void Executor::step(Pass& pass) {
  const Stopwatch watch(times_.reduce);
  without_waits([] { return std::string("the end of the gradient reductions"); }, [&] { store_.finish_reductions(); });
  warm_ = true;
  const StepShare share{std::move(*pass.sums), store_.local_grad_square_sums(), pass.loss_scale, steady_seconds() - pass.started,
                        pass.stop_requested && pass.stop_requested(/*step_done=*/true)};
  pass.result = combine_shares(share, *pass.objective, pass.range, groups_);
}

HeadBlock Executor::head_block(const Action& action, MicroInFlight& micro, const Pass& pass) {
  const auto index = static_cast<std::size_t>(action.micro);
  return {index, pass.micros[index], micro, transformer_, *units_, in_flight_->scratch()};
}

MicroInFlight& Executor::open(const Action& action, const Pass& pass) {
  MicroInFlight& micro = in_flight_->free_place(action.lane);
  const bool trains = pass.training() && action.lane == Lane::policy;
  const model::MicroInput* in = &pass.micros[static_cast<std::size_t>(action.micro)];
  if (graphs_ && trains) in = &graphs_->admit(micro.place(), *in);
  micro.open(action.micro, *in, trains, in_flight_->scratch());
  return micro;
}

void Executor::forward_layer(const Action& action, MicroInFlight& micro, const Pass& pass) {
  model::Arena& scratch = in_flight_->scratch();
  const auto mark = scratch.mark();
  LayerCall call = units_->layer(action.target, action.lane == Lane::reference ? BindMode::base : BindMode::weights);
  call.counts_routing = action.lane == Lane::policy && pass.training();
  if (transformer_.spec().has_experts(action.target))
    call.on_expert_rows = [this, unit = action.target](std::span<const std::int64_t> begins) {
      const double start = steady_seconds();
      gather_experts(unit, begins);
      times_.forward -= steady_seconds() - start;
    };
  micro.forward(call, action.needs_gradient, scratch);
  run(call, micro, pass);
  scratch.release(mark);
}

void Executor::backward_layer(const Action& action, MicroInFlight& micro, const Pass& pass) {
  model::Arena& scratch = in_flight_->scratch();
  const auto mark = scratch.mark();
  LayerCall call = units_->layer(action.target, BindMode::gradients);
  if (transformer_.spec().has_experts(action.target))
    call.on_expert_rows = [this, unit = action.target](auto begins) { store_.verify_experts(unit, begins); };
  micro.backward(call, action.needs_gradient, scratch);
  run(call, micro, pass);
  scratch.release(mark);
}

void Executor::run(const LayerCall& call, const MicroInFlight& micro, const Pass& pass) {
  if (micro.lane() == Lane::reference) return call.run(transformer_, micro.input(), {}, {});
  if (graphs_ && pass.training()) return graphs_->run(micro.place(), call);
  model::RoutingLoss routing = pass.training() ? pass.objective->routing() : model::RoutingLoss{};
  routing.balance *= pass.loss_scale;
  routing.z *= pass.loss_scale;
  call.run(transformer_, micro.input(), pass.random, routing);
}

void Executor::without_waits(const std::function<std::string()>& what, const std::function<void()>& part) const {
  device::without_waits(transformer_.device(), diagnostics_.debug_sync && warm_, what, part);
}

std::string Executor::memory_held() const {
  const StoreMemory m = store_.memory();
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const ExecutorMemory own = memory();
  return fmt::format("weights {}, gathered {}, gradients {}, activations {}, buffers {}; {} in all", text(m.weights),
                     text(m.gathered), text(m.grads), text(own.activations), text(own.buffers),
                     text(device::memory_use(transformer_.device()).current));
}

PhaseTimes Executor::take_times() {
  return std::exchange(times_, {});
}

ExecutorMemory Executor::memory() const {
  return {in_flight_->bytes(), in_flight_->scratch().bytes_in_use() + transformer_.workspace().bytes_in_use()};
}

}  // namespace qft::parallel

#include "qft/parallel/executor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include <c10/core/InferenceMode.h>

#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/device/stream.h"
#include "qft/device/wait_check.h"
#include "qft/parallel/group_size.h"
#include "qft/parallel/out_of_memory.h"

namespace qft::parallel {
namespace {

/// Adds the time of a scope to a counter.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() { total_ += steady_seconds() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  double start_ = steady_seconds();
};

}  // namespace

Executor::Executor(model::Transformer& transformer, WeightStore& store, comm::Communicator& comm,
                   const ExecutorOptions& options)
    : transformer_(transformer),
      store_(store),
      comm_(comm),
      options_(options),
      held_(transformer.spec().units.size(), nullptr),
      bound_(transformer.spec().units.size()),
      scratch_(transformer.device()),
      graphs_(options.graphs ? std::make_unique<LayerGraphs>(transformer) : nullptr) {
  QFT_ASSERT(!options.graphs || (options.lora_dropout == 0.0 && !options.offload_inputs), "graphs have no masks of their own step, and no copies");
  QFT_ASSERT(options.recompute || !options.offload_inputs, "inputs of layers are offloaded where layers are computed again");
  const auto& units = transformer.spec().units;
  while (lowest_backward_ < static_cast<int>(units.size()) &&
         units[static_cast<std::size_t>(lowest_backward_)].trainable_numel == 0)
    ++lowest_backward_;
}

StepResult Executor::train(const ActionList& list, std::span<const model::MicroInput> micros, TokenMeanLoss& objective,
                           std::uint64_t step, const AskedToStop& asked_to_stop, double loss_scale,
                           const MicroRange& range) {
  QFT_ASSERT(range.total == 0 || range.count == static_cast<std::int64_t>(micros.size()), "{} micro-batches, not {}", micros.size(),
             range.count);
  const double started = steady_seconds();
  store_.start_step(range);
  Pass pass{micros, objective, {options_.lora_dropout, options_.seed, step}, true, loss_scale, asked_to_stop};
  interpret(list, pass);
  if (pass.votes > 0) {
    store_.abandon_step();
    return {.votes = pass.votes, .abandoned = true};
  }
  // The step action: one all-reduce carries the squared norm and the loss; whatever is not finite shows in them.
  const Stopwatch watch(times_.reduce);
  without_waits([] { return std::string("what ends the reductions"); }, [&] { store_.finish_reductions(); });
  warm_ = true;
  const std::vector<double> losses = objective.losses();
  constexpr std::size_t kFirstLoss = 3;
  std::vector<double> agreed(kFirstLoss + static_cast<std::size_t>(std::max<std::int64_t>(range.total, 1)));
  if (range.total > 0) {  // each has a place of its own: zeros of the other ranks change nothing
    std::copy(losses.begin(), losses.end(), agreed.begin() + kFirstLoss + range.first);
  } else {
    agreed[kFirstLoss] = std::accumulate(losses.begin(), losses.end(), 0.0);
  }
  agreed[0] = store_.local_grad_square_sum();
  agreed[1] = steady_seconds() - started;
  agreed[2] = asked_to_stop && asked_to_stop(/*step_done=*/true) ? 1.0 : 0.0;
  comm_.host().all_reduce(agreed.data(), agreed.size(), DType::f64);
  const double loss = std::accumulate(agreed.begin() + kFirstLoss, agreed.end(), 0.0);
  return {.loss = plain_nan(loss),
          .grad_norm = plain_nan(std::sqrt(agreed[0]) / loss_scale),
          .finite = std::isfinite(agreed[0]) && std::isfinite(loss),
          .votes = static_cast<int>(agreed[2]),
          .seconds = agreed[1] / comm_.size()};
}

void Executor::evaluate(const ActionList& list, std::span<const model::MicroInput> micros, Objective& objective) {
  Pass pass{micros, objective, {}, false};
  interpret(list, pass);
}

void Executor::interpret(const ActionList& list, Pass& pass) {
  const c10::InferenceMode no_autograd;
  for (const auto& in : pass.micros)
    transformer_.ensure_positions(graphs_ && pass.training ? bucket_of(in).tokens : in.sequences.max_length);
  const Action* current = nullptr;
  const auto where = [&] { return current == nullptr ? "the start of a step" : describe(*current, transformer_.spec()); };
  const auto perform_all = [&] {
    for (const Action& action : list) {
      current = &action;
      perform(action, pass);
      if (pass.votes > 0) return;
      store_.poll();  // MPI makes no progress of its own
      activity::tick();
    }
  };
  const auto checked = [&] { pass.training ? without_waits(where, perform_all) : perform_all(); };
  or_explain_memory(checked, where, [&] { return memory_held(); }, options_.memory_advice);
}

void Executor::without_waits(const std::function<std::string()>& what, const std::function<void()>& part) const {
  device::without_waits(transformer_.device(), options_.debug_sync && warm_, what, part);
}

void Executor::perform(const Action& action, Pass& pass) {
  switch (action.kind) {
    case ActionKind::gather: store_.gather(action.target, /*frozen_only=*/false); break;
    case ActionKind::gather_frozen: store_.gather(action.target, /*frozen_only=*/true); break;
    case ActionKind::acquire: acquire(action.target); break;
    case ActionKind::forward: forward(action, pass); break;
    case ActionKind::backward: backward(action, pass); break;
    case ActionKind::release: store_.release(action.target); break;
    case ActionKind::reduce: {
      const Stopwatch watch(times_.reduce);
      store_.reduce(action.target);
      break;
    }
    case ActionKind::vote: pass.votes = count_votes(pass); break;
    case ActionKind::step: break;  // train() does what follows
  }
}

int Executor::count_votes(const Pass& pass) {
  // Work queued on a device would not be abandoned: the host is ahead of it.
  device::Event done(transformer_.device());
  done.record(device::Stream::current(transformer_.device()));
  done.synchronize();
  std::int32_t votes = pass.asked_to_stop && pass.asked_to_stop(/*step_done=*/false) ? 1 : 0;
  comm_.host().all_reduce(&votes, 1, DType::i32);
  return votes;
}

std::string Executor::memory_held() const {
  const StoreMemory m = store_.memory();
  const auto text = [](std::int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const ExecutorMemory own = memory();
  return fmt::format("weights {}, gathered {}, gradients {}, activations {}, buffers {}; {} in all", text(m.weights), text(m.gathered),
                     text(m.grads), text(own.activations), text(own.buffers), text(device::memory_use(transformer_.device()).current));
}

void Executor::acquire(int unit) {
  const Stopwatch watch(times_.gather);
  held_[static_cast<std::size_t>(unit)] = &store_.acquire(unit);
}

void Executor::forward(const Action& action, Pass& pass) {
  const Stopwatch watch(times_.forward);
  const auto& spec = transformer_.spec();
  if (action.target == 0) {
    Slot& slot = open_slot(action.micro, pass);
    const std::array<std::int64_t, 2> shape = {slot.in->num_tokens(), spec.config.hidden_size};
    if (pass.training) slot.g = slot.arena.alloc(shape, transformer_.dtype());
    slot.x = slot.arena.alloc(shape, transformer_.dtype());
    if (!keeps_boundaries(pass)) slot.spare = slot.arena.alloc(shape, transformer_.dtype());
    transformer_.embedding_forward(
        model::bind_weight(spec.units[0], model::TensorKind::embed_tokens, buffers_of(0, With::weights)), *slot.in, slot.x);
  } else if (action.target == spec.head_unit()) {
    forward_head(action.micro, slot_of(action.micro), pass);
  } else {
    forward_layer(action.target, slot_of(action.micro), pass);
  }
}

void Executor::run(const LayerCall& call, const Slot& slot, const Pass& pass) {
  if (graphs_ && pass.training) return graphs_->run(slot.index, call);
  call.run(transformer_, *slot.in, pass.dropout);
}

void Executor::forward_layer(int block, Slot& slot, const Pass& pass) {
  const bool keeps_all = pass.training && !options_.recompute;
  LayerCall call = layer_call(block, With::weights);
  const at::Tensor x = slot.x;
  if (pass.training && options_.offload_inputs) slot.inputs.keep(call.layer, x);
  call.y = keeps_boundaries(pass) ? slot.arena.alloc(x.sizes(), transformer_.dtype()) : slot.spare;
  const auto mark = scratch_.mark();
  call.saved = transformer_.room_for(*call.weights, x, keeps_all ? slot.arena : scratch_);
  run(call, slot, pass);
  scratch_.release(mark);
  auto& saved = slot.saved[static_cast<std::size_t>(call.layer)];
  saved = {};
  if (keeps_all) saved = call.saved;
  if (keeps_boundaries(pass)) saved.x = x;
  slot.spare = x;
  slot.x = call.y;
}

void Executor::forward_head(int micro, Slot& slot, Pass& pass) {
  const auto& spec = transformer_.spec();
  const auto& in = pass.micros[static_cast<std::size_t>(micro)];
  const With with = pass.training ? With::gradients : With::weights;
  const auto norm = model::bind_weight(spec.units.back(), model::TensorKind::final_norm, buffers_of(spec.head_unit(), with));
  const auto mark = scratch_.mark();
  const at::Tensor logprobs = scratch_.alloc({in.labels.size()}, transformer_.statistics_dtype());
  if (pass.training) {
    const at::Tensor grad = scratch_.alloc({in.labels.size()}, transformer_.statistics_dtype());
    pass.objective.grad_logprobs(micro, in, grad);
    if (pass.loss_scale != 1.0) grad.mul_(pass.loss_scale);
    transformer_.head_forward_backward(norm, head_table(with), in, slot.x, grad, logprobs, slot.g);
  } else {
    transformer_.head_forward(norm, head_table(with), in, slot.x, logprobs);
  }
  pass.objective.observe(micro, in, logprobs);
  scratch_.release(mark);
  if (!pass.training) close_slot(slot);
}

void Executor::backward(const Action& action, Pass& pass) {
  const Stopwatch watch(times_.backward);
  const auto& spec = transformer_.spec();
  Slot& slot = slot_of(action.micro);
  const int block = action.target;
  if (block == 0) {
    transformer_.embedding_backward(
        model::bind_weight(spec.units[0], model::TensorKind::embed_tokens, buffers_of(0, With::gradients)), *slot.in, slot.g);
  } else if (block != spec.head_unit()) {  // the head's gradient came with its forward
    backward_layer(block, slot, pass);
  }
  if (block == lowest_backward_) close_slot(slot);
}

void Executor::backward_layer(int block, Slot& slot, const Pass& pass) {
  LayerCall call = layer_call(block, With::gradients);
  auto& saved = slot.saved[static_cast<std::size_t>(call.layer)];
  const auto mark = scratch_.mark();
  if (options_.recompute) {
    const bool last = block == lowest_backward_ || call.layer == 0;
    const at::Tensor x = options_.offload_inputs ? slot.inputs.fetch(call.layer, slot.x, slot.spare, last) : saved.x;
    call.y = scratch_.alloc(x.sizes(), transformer_.dtype());
    call.saved = transformer_.room_for(*call.weights, x, scratch_);
  } else {
    call.saved = saved;
  }
  call.g = slot.g;
  call.needs_input_grad = block > lowest_backward_;
  run(call, slot, pass);
  saved = {};
  scratch_.release(mark);
}

Executor::Slot& Executor::open_slot(int micro, const Pass& pass) {
  auto free = std::ranges::find_if(slots_, [](const auto& slot) { return slot->micro < 0; });
  if (free == slots_.end()) {
    slots_.push_back(std::make_unique<Slot>(slots_.size(), transformer_.device()));
    free = slots_.end() - 1;
    (*free)->saved.resize(static_cast<std::size_t>(transformer_.spec().config.num_layers));
  }
  Slot& slot = **free;
  slot.micro = micro;
  slot.in = &pass.micros[static_cast<std::size_t>(micro)];
  if (graphs_ && pass.training) slot.in = &graphs_->admit(slot.index, *slot.in);
  make_room(slot, slot.in->num_tokens(), pass.training);
  return slot;
}

/// At once what would come in pieces: an arena that grows moves, and leaves the heap with holes.
void Executor::make_room(Slot& slot, std::int64_t tokens, bool training) {
  const auto& spec = transformer_.spec();
  const at::ScalarType type = transformer_.dtype();
  constexpr std::int64_t kGaps = 8192;  // of alignment, in a layer
  // Host pages are taken when they are touched: room for the next, longer micro-batch costs nothing.
  if (transformer_.device().is_cpu()) tokens = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens)));
  slot.arena.reserve(training ? parallel::activation_bytes(spec, type, tokens, options_.recompute, options_.offload_inputs) +
                                    (spec.config.num_layers + 1) * kGaps
                              : boundary_bytes(spec, type, tokens) * 2 + kGaps);
  if (!training || options_.recompute) scratch_.reserve(recomputed_layer_bytes(spec, type, tokens) + kGaps);
}

Executor::Slot& Executor::slot_of(int micro) {
  for (auto& slot : slots_)
    if (slot->micro == micro) return *slot;
  fail("micro-batch {} is not in flight: the action list is not a valid schedule", micro);
}

void Executor::close_slot(Slot& slot) {
  slot.micro = -1;
  slot.in = nullptr;
  slot.x = slot.g = slot.spare = at::Tensor();
  slot.arena.release({});
}

model::FlatBuffers Executor::buffers_of(int unit, With with) const {
  const UnitBuffers* held = held_[static_cast<std::size_t>(unit)];
  QFT_ASSERT(held != nullptr && held->generation != 0, "unit {} is used while it is not acquired", unit);
  return {held->frozen, held->trainable, with == With::gradients ? store_.grads(unit) : at::Tensor()};
}

LayerCall Executor::layer_call(int block, With with) {
  LayerCall call;
  call.layer = block - 1;
  call.flat = buffers_of(block, with);
  Bound& bound = bound_[static_cast<std::size_t>(block)][static_cast<std::size_t>(with)];
  const std::uint64_t generation = held_[static_cast<std::size_t>(block)]->generation;
  // The old views keep their storage object alive, so that no other has its address.
  const void* grads = call.flat.grad.defined() ? call.flat.grad.storage().unsafeGetStorageImpl() : nullptr;
  if (bound.generation != generation || bound.grads != grads)
    bound = {generation, grads,
             std::make_shared<model::LayerWeights>(
                 model::bind_layer(transformer_.spec(), transformer_.spec().units[static_cast<std::size_t>(block)], call.flat))};
  call.weights = bound.weights;
  return call;
}

model::Weight Executor::head_table(With with) const {
  const auto& spec = transformer_.spec();
  if (spec.config.tie_word_embeddings)
    return model::bind_weight(spec.units[0], model::TensorKind::embed_tokens, buffers_of(0, with));
  return model::bind_weight(spec.units.back(), model::TensorKind::lm_head, buffers_of(spec.head_unit(), with));
}

PhaseTimes Executor::take_times() { return std::exchange(times_, {}); }

ExecutorMemory Executor::memory() const {
  ExecutorMemory m;
  for (const auto& slot : slots_) m.activations += slot->arena.held();
  m.buffers = scratch_.held() + transformer_.workspace().held();
  return m;
}

}  // namespace qft::parallel

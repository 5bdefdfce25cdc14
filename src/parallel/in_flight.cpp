#include "in_flight.h"

#include "qft/core/error.h"
#include "qft/parallel/activation_bytes.h"

#include <algorithm>
#include <utility>

namespace qft::parallel {

MicroInFlight::MicroInFlight(std::size_t place, Lane lane, const model::Transformer& transformer, const ActivationPolicy& policy)
    : place_(place),
      lane_(lane),
      transformer_(transformer),
      policy_(policy),
      arena_(transformer.device()),
      offloaded_(transformer.device()),
      layers_(static_cast<std::size_t>(transformer.spec().config.num_layers)) {}

void MicroInFlight::open(int micro, const model::MicroInput& in, bool training, model::Arena& scratch) {
  micro_ = micro;
  in_ = &in;
  reserve(in.sequences.num_rows(), training, scratch);
  if (auto angles = transformer_.dynamic_angles(in, arena_)) {
    input_with_angles_ = in;
    input_with_angles_.angles = std::move(angles);
    in_ = &input_with_angles_;
  }
  if (training) g_ = boundary();
  x_ = boundary();
}

/// Reserves all memory at once: an arena that grows step by step moves and fragments the heap.
void MicroInFlight::reserve(std::int64_t tokens, bool training, model::Arena& scratch) {
  const auto& spec = transformer_.spec();
  const at::ScalarType type = transformer_.dtype();
  constexpr std::int64_t kGaps = 8192;  // upper bound of a layer's alignment gaps
  arena_.reserve(training ? activation_bytes(spec, type, tokens, policy_.recompute, policy_.offload_inputs) +
                                (spec.config.num_layers + 1) * kGaps
                          : forward_bytes(spec, type, tokens) + kGaps);
  if (!training || policy_.recompute || spec.lowest_trained_block() > 1)
    scratch.reserve(recomputed_layer_bytes(spec, type, tokens) + kGaps);
}

void MicroInFlight::close() {
  micro_ = -1;
  in_ = nullptr;
  input_with_angles_ = {};
  x_ = g_ = grad_values_ = spare_ = at::Tensor();
  arena_.release({});
}

const at::Tensor& MicroInFlight::grad_values(std::int64_t count) {
  if (!grad_values_.defined()) grad_values_ = arena_.alloc({count}, transformer_.statistics_dtype());
  return grad_values_;
}

void MicroInFlight::forward(LayerCall& call, bool needs_gradient, model::Arena& scratch) {
  const bool keeps_input = needs_gradient && !policy_.offload_inputs, keeps_all = needs_gradient && !policy_.recompute;
  const at::Tensor x = x_;
  if (needs_gradient && policy_.offload_inputs) offloaded_.keep(call.layer, x);
  if (!keeps_input && !spare_.defined()) spare_ = boundary();
  call.y = keeps_input ? boundary() : spare_;
  call.saved = transformer_.allocate_saved(call.layer, *call.weights, x, keeps_all ? arena_ : scratch, in_);
  SavedLayer& kept = layers_[static_cast<std::size_t>(call.layer)];
  kept = {};
  if (keeps_input) kept.x = x;
  if (keeps_all) kept.saved = call.saved;
  spare_ = x;
  x_ = call.y;
}

void MicroInFlight::backward(LayerCall& call, bool needs_gradient, model::Arena& scratch) {
  SavedLayer& kept = layers_[static_cast<std::size_t>(call.layer)];
  if (policy_.recompute) {
    const bool last = !needs_gradient || call.layer == 0;
    const at::Tensor x = policy_.offload_inputs ? offloaded_.fetch(call.layer, x_, spare_, last) : kept.x;
    call.y = scratch.alloc(x.sizes(), transformer_.dtype());
    call.saved = transformer_.allocate_saved(call.layer, *call.weights, x, scratch, in_);
  } else {
    call.saved = kept.saved;
  }
  call.g = g_;
  call.needs_input_grad = needs_gradient;
  kept = {};
}

InFlight::InFlight(const model::Transformer& transformer, const ActivationPolicy& policy)
    : transformer_(transformer), policy_(policy), scratch_(transformer.device()) {}

// Places of the reference lane have small arenas, so they are never reused for the policy.
MicroInFlight& InFlight::free_place(Lane lane) {
  const auto free = std::ranges::find_if(places_, [&](const auto& place) { return place->micro() < 0 && place->lane() == lane; });
  if (free != places_.end()) return **free;
  return *places_.emplace_back(std::make_unique<MicroInFlight>(places_.size(), lane, transformer_, policy_));
}

MicroInFlight& InFlight::at(int micro, Lane lane) {
  for (const auto& place : places_)
    if (place->micro() == micro && place->lane() == lane) return *place;
  fail("micro-batch {} is not in flight: the action list is not a valid schedule", micro);
}

std::int64_t InFlight::bytes() const {
  std::int64_t total = 0;
  for (const auto& place : places_) total += place->bytes();
  return total;
}

}  // namespace qft::parallel

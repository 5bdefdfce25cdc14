#include "acquired_units.h"

#include "qft/core/error.h"

namespace qft::parallel {

AcquiredUnits::AcquiredUnits(const model::ModelSpec& spec, WeightStore& store)
    : spec_(spec), store_(store), held_(spec.units.size(), nullptr), bound_(spec.units.size()) {}

model::UnitBuffers AcquiredUnits::buffers_of(int unit, BindMode mode) const {
  const model::UnitBuffers* held = held_[static_cast<std::size_t>(unit)];
  QFT_ASSERT(held != nullptr && held->generation != 0, "unit {} is used while it is not acquired", unit);
  model::UnitBuffers buffers = *held;
  if (mode == BindMode::gradients) buffers.grad = store_.grads(unit);
  return buffers;
}

model::Weight AcquiredUnits::weight(int unit, std::string_view path, BindMode mode) const {
  return model::bind_weight(spec_.units[static_cast<std::size_t>(unit)], path, buffers_of(unit, mode));
}

model::HeadWeights AcquiredUnits::head(BindMode mode) const {
  return model::bind_head(spec_, buffers_of(spec_.head_unit(), mode),
                          spec_.ties_head() ? buffers_of(0, mode) : model::UnitBuffers{});
}

LayerCall AcquiredUnits::layer(int block, BindMode mode) {
  LayerCall call;
  call.layer = block - 1;
  call.flat = buffers_of(block, mode);
  BoundLayer& bound = bound_[static_cast<std::size_t>(block)][static_cast<std::size_t>(mode)];
  const std::uint64_t generation = held_[static_cast<std::size_t>(block)]->generation;
  // The old views keep their storage object alive, so no new storage can have the same address.
  const void* grads = call.flat.grad.defined() ? call.flat.grad.storage().unsafeGetStorageImpl() : nullptr;
  if (bound.generation != generation || bound.grads != grads)
    bound = {generation, grads,
             std::make_shared<model::LayerWeights>(model::bind_layer(spec_, spec_.units[static_cast<std::size_t>(block)],
                                                                     call.flat, /*adapter=*/mode != BindMode::base))};
  call.weights = bound.weights;
  return call;
}

}  // namespace qft::parallel

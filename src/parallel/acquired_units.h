// The acquired units, as the views that blocks compute with.
#pragma once

#include "qft/model/spec.h"
#include "qft/model/weights.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/parallel/weight_store.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace qft::parallel {

/// Which weights to bind: all of them, all plus the buffers that receive gradients, or all except the adapter's.
enum class BindMode : std::uint8_t { weights, gradients, base };

class AcquiredUnits {
 public:
  /// Both must outlive this object.
  AcquiredUnits(const model::ModelSpec& spec, WeightStore& store);

  void acquire(int unit, GatherPurpose purpose) { held_[static_cast<std::size_t>(unit)] = &store_.acquire(unit, purpose); }

  // Views of acquired units; valid until the release.
  model::Weight embedding(BindMode mode) const { return weight(0, model::kEmbedTokens, mode); }
  model::HeadWeights head(BindMode mode) const;
  /// Returns a call of the block's layer, without the micro-batch's memory.
  LayerCall layer(int block, BindMode mode);

 private:
  model::UnitBuffers buffers_of(int unit, BindMode mode) const;
  model::Weight weight(int unit, std::string_view path, BindMode mode) const;

  const model::ModelSpec& spec_;
  WeightStore& store_;
  std::vector<const model::UnitBuffers*> held_;
  /// A layer's views. They are rebuilt when its weights are gathered again or its gradients have moved.
  struct BoundLayer {
    std::uint64_t generation = 0;
    const void* grads = nullptr;
    std::shared_ptr<const model::LayerWeights> weights;
  };
  std::vector<std::array<BoundLayer, 3>> bound_;  ///< by unit and BindMode
};

}  // namespace qft::parallel

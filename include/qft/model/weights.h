// Named views into a unit's flat buffers, in the shape the operations take. Views own nothing.
#pragma once

#include "qft/model/spec.h"
#include "qft/ops/linear.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// The flat 1-D buffers of one unit, whole (undefined where empty).
struct UnitBuffers {
  at::Tensor frozen;             ///< [frozen_numel], compute dtype
  at::Tensor trainable;          ///< [trainable_numel], compute dtype
  at::Tensor grad;               ///< [trainable_numel], gradient dtype; undefined where no gradients are asked for
  std::uint64_t generation = 0;  ///< another one with each gather: views of an older one are stale; 0: not here
  at::Tensor decoded = {};       ///< [quantized_numel], compute dtype
  at::Tensor derived = {};       ///< [derived_numel], what derive_values() makes, fp32, or fp64 for fp64
};

/// Elements [begin, end()) of what is flat and may be shared by ranks, as this one has them: of a unit's buffer, or of the box of
/// a parameter. `values` is 1-D, of any floating dtype on any device.
struct Shard {
  at::Tensor values;
  std::int64_t begin = 0;
  std::int64_t end() const { return begin + values.numel(); }
};

/// A fused projection with its gradients.
struct Projection {
  ops::LinearWeights weights;
  ops::LinearGrads grads;
  /// True where some gradient needs the forward's input.
  bool needs_input() const;
};

/// A vector parameter or a matrix that is no projection, with its gradient (undefined: frozen).
struct Weight {
  at::Tensor value, grad;
};

/// The parameters of a sub-layer, in the order of its description (model/sublayer_spec.h).
struct SubLayerWeights {
  Weight norm;
  std::vector<Projection> linears;
  std::vector<Weight> vectors;
};
/// Of a layer's sub-layers, in order.
using LayerWeights = std::vector<SubLayerWeights>;

/// What follows the layers: the final norm, and the projection of what it gives.
struct HeadWeights {
  Weight norm;
  Weight table;      ///< [vocab, hidden]; of a reward model [1, hidden]
  Weight bias = {};  ///< [1], of a reward model
};

/// `adapter`: with the adapter's parameters, where the model has them.
LayerWeights bind_layer(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, bool adapter = true);
/// The tensor at this path of the unit; throws if there is none.
Weight bind_weight(const UnitSpec& unit, std::string_view path, const UnitBuffers& flat);
/// `embedding`: the flat buffers of the first unit, read where the head is tied to it.
HeadWeights bind_head(const ModelSpec& spec, const UnitBuffers& head, const UnitBuffers& embedding);
/// Decodes a unit's quantised weights: `packed` [packed_bytes] (uint8) to `decoded` [quantized_numel], on one device.
void decode(const UnitSpec& unit, const at::Tensor& packed, const at::Tensor& decoded);
/// Fills UnitBuffers::derived with what follows from the unit's weights, where it has such values.
void derive_values(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat);
/// DoRA's norms that derive_values() leaves, of the rows of a magnitude's linear: the first values of the magnitude itself.
at::Tensor row_norms(const ParamSpec& magnitude, const at::Tensor& derived);
/// The 1-D view of a parameter in whichever of the buffers holds it.
at::Tensor param_view(const ParamSpec& param, const UnitBuffers& flat);

}  // namespace qft::model

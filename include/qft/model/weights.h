// Named views into a unit's flat buffers, shaped for the operations. Views own nothing.
#pragma once

#include "qft/model/row_sharing.h"
#include "qft/model/spec.h"
#include "qft/ops/linear.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// The whole flat 1-D buffers of one unit (undefined if empty).
struct UnitBuffers {
  at::Tensor frozen;             ///< [frozen_numel], compute dtype
  at::Tensor trainable;          ///< [trainable_numel], compute dtype
  at::Tensor grad;               ///< [trainable_numel], gradient dtype; undefined if no gradients are requested
  std::uint64_t generation = 0;  ///< changes with each gather, so older views are stale; 0: not gathered
  at::Tensor decoded = {};       ///< [quantized_numel], compute dtype
  at::Tensor derived = {};       ///< [derived_numel], results of derive_values(), fp32, or fp64 for fp64 data
};

/// This rank's elements [begin, end()) of a flat buffer or a parameter's boxes that ranks may share. `values` is 1-D, of any
/// floating dtype on any device.
struct Shard {
  at::Tensor values;
  std::int64_t begin = 0;
  std::int64_t end() const { return begin + values.numel(); }
};

/// A projection group with its gradients.
struct Projection {
  ops::LinearWeights weights;
  ops::LinearGrads grads;
  /// Returns true if some gradient needs the forward's input.
  bool needs_input() const;
};

/// A vector parameter or a matrix outside projection groups, with its gradient (undefined: frozen).
struct Weight {
  at::Tensor value, grad;
};

/// The parameters of a sub-layer, in the order of its description (model/sublayer_spec.h).
struct SubLayerWeights {
  Weight norm;
  std::vector<Projection> linears;
  std::vector<Weight> vectors;
};
/// The parameters of a layer, by sub-layer.
using LayerWeights = std::vector<SubLayerWeights>;

/// The weights after the layers: the final norm and the output projection.
struct HeadWeights {
  Weight norm;
  Weight table = {};  ///< [vocab, hidden]; in a reward model [1, hidden]; undefined if the head gives vectors
  Weight bias = {};   ///< [1], in a reward model
};

/// Binds a layer's views. `adapter`: include the adapter's parameters, if the model has them.
LayerWeights bind_layer(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, bool adapter = true);
/// Returns the unit's tensor at this path; throws if there is none.
Weight bind_weight(const UnitSpec& unit, std::string_view path, const UnitBuffers& flat);
/// Binds the head. `embedding`: the first unit's flat buffers, used if the head is tied to the embedding.
HeadWeights bind_head(const ModelSpec& spec, const UnitBuffers& head, const UnitBuffers& embedding);
/// Decodes a unit's quantised weights from `packed` [packed_bytes] (uint8) to `decoded` [quantized_numel], on one device.
void decode(const UnitSpec& unit, const at::Tensor& packed, const at::Tensor& decoded);
/// Fills UnitBuffers::derived with the values that follow from the unit's weights, if there are any. Collective over the ranks
/// that share matrices.
void derive_values(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, const RowSharing& tensor = {});
/// Returns the row norms that derive_values() stored for DoRA, for the rows of a magnitude's linear: the initial values of the
/// magnitude.
at::Tensor row_norms(const ParamSpec& magnitude, const at::Tensor& derived);
/// Returns the 1-D view of a parameter in the buffer that holds it.
at::Tensor param_view(const ParamSpec& param, const UnitBuffers& flat);

}  // namespace qft::model

// What a layer does in one action of a list: at once, or as a graph.
#pragma once

#include <memory>

#include "qft/model/transformer.h"

namespace qft::parallel {

/// What a layer does in one action, and the memory in which it does it.
struct LayerCall {
  int layer = 0;
  model::UnitBuffers flat;                             ///< of which `weights` are views
  std::shared_ptr<const model::LayerWeights> weights;
  model::LayerSaved saved;
  at::Tensor y;  ///< [T, hidden], where it runs forward
  at::Tensor g;  ///< [T, hidden], where it runs backward (after that): y's gradient, and then x's
  bool needs_input_grad = true;

  void run(model::Transformer& transformer, const model::MicroInput& in, const model::DropoutPass& dropout) const {
    if (y.defined()) transformer.layer_forward(layer, *weights, in, dropout, y, saved);
    if (g.defined()) transformer.layer_backward(layer, *weights, in, dropout, saved, g, needs_input_grad);
  }
};

}  // namespace qft::parallel

// The work of one layer in one action: run directly, or as a graph.
#pragma once

#include "qft/model/transformer.h"

#include <memory>

namespace qft::parallel {

/// One call of a layer, forward or backward, with all the memory that it uses.
struct LayerCall {
  int layer = 0;
  model::UnitBuffers flat;  ///< `weights` holds views of these buffers
  std::shared_ptr<const model::LayerWeights> weights;
  model::LayerSaved saved;
  at::Tensor y;  ///< [T, hidden]: the output that forward writes; defined for forward
  at::Tensor g;  ///< [T, hidden]: y's gradient, which backward replaces by x's; defined for backward
  bool needs_input_grad = true;
  bool counts_routing = true;                     ///< count this pass in the routing statistics
  model::ExpertRowsCallback on_expert_rows = {};  ///< for forward passes, including recomputed ones

  void run(model::Transformer& transformer, const model::MicroInput& in, const model::RandomPass& random,
           const model::RoutingLoss& routing) const {
    if (y.defined()) transformer.layer_forward(layer, *weights, in, random, y, saved, on_expert_rows);
    if (y.defined() && !g.defined() && counts_routing) transformer.observe_routing(layer, in, saved);
    if (g.defined()) transformer.layer_backward(layer, *weights, in, random, saved, g, needs_input_grad, routing);
  }
};

}  // namespace qft::parallel

// What a layer does in one action of a list: at once, or as a graph.
#pragma once

#include "qft/model/transformer.h"

#include <memory>

namespace qft::parallel {

/// One call of a layer, forward or backward, with all memory that it uses.
struct LayerCall {
  int layer = 0;
  model::UnitBuffers flat;  ///< of which `weights` are views
  std::shared_ptr<const model::LayerWeights> weights;
  model::LayerSaved saved;
  at::Tensor y;  ///< [T, hidden]: defined for forward, which writes it
  at::Tensor g;  ///< [T, hidden]: defined for backward, which replaces y's gradient by x's
  bool needs_input_grad = true;
  bool counts_routing = true;            ///< what routers did in forward is of the policy
  model::NeedExperts need_experts = {};  ///< of forward passes, those computed again too

  void run(model::Transformer& transformer, const model::MicroInput& in, const model::RandomPass& random,
           const model::RoutingLoss& routing) const {
    if (y.defined()) transformer.layer_forward(layer, *weights, in, random, y, saved, need_experts);
    if (y.defined() && !g.defined() && counts_routing) transformer.observe_routing(layer, in, saved);
    if (g.defined()) transformer.layer_backward(layer, *weights, in, random, saved, g, needs_input_grad, routing);
  }
};

}  // namespace qft::parallel

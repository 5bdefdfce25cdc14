// Feed-forward of each row: down(activation(in(x))). Private to model.
#pragma once

#include "qft/model/sublayer.h"

namespace qft::model {

/// `Activation` has static forward(rows, act), and backward(rows, gact), which overwrites `rows` with their gradient.
template <class Activation>
class DenseFeedForward final : public SubLayer {
 public:
  using SubLayer::SubLayer;

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    const at::Tensor act = pass.scratch(spec_.scratch[kAct]);
    ops::linear_forward(x, w.linears[kIn].weights, pass.dropout, s.tensors[kRows], s.lora[kIn], pass.workspace);
    Activation::forward(s.tensors[kRows], act);
    ops::linear_forward(act, w.linears[kDown].weights, pass.dropout, out, s.lora[kDown], pass.workspace);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &in = w.linears[kIn], &down = w.linears[kDown];
    const at::Tensor& rows = s.tensors[kRows];
    const at::Tensor gact = pass.scratch(spec_.scratch[kGradAct]);
    at::Tensor act;  // cheaper to recompute than to keep
    if (down.needs_input()) {
      act = pass.scratch(spec_.scratch[kAct]);
      Activation::forward(rows, act);
    }
    ops::linear_backward({.gy = gout, .x = act, .saved = s.lora[kDown], .gx = gact}, down.weights, pass.dropout, down.grads,
                         pass.workspace);
    Activation::backward(rows, gact);
    ops::linear_backward({.gy = rows, .x = x, .saved = s.lora[kIn], .gx = gx, .mode = mode}, in.weights, pass.dropout, in.grads,
                         pass.workspace);
  }

 private:
  // In the order of the descriptions (swiglu_spec.cpp, squared_relu_spec.cpp).
  enum Linear : std::size_t { kIn, kDown };
  enum Saved : std::size_t { kRows };
  enum Scratch : std::size_t { kAct, kGradAct };
};

}  // namespace qft::model

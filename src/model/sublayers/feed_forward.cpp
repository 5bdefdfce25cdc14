// Feed-forwards of each row: down(activation(in(x))).
#include "qft/model/sublayer.h"
#include "qft/ops/activation.h"

#include "kinds.h"

namespace qft::model {
namespace {

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
  // In the order of the descriptions (kind_specs.cpp).
  enum Linear : std::size_t { kIn, kDown };
  enum Saved : std::size_t { kRows };
  enum Scratch : std::size_t { kAct, kGradAct };
};

/// A gated activation (Shazeer 2020). `rows` holds the gate's columns, then the columns it multiplies.
struct SwiGlu {
  static void forward(const at::Tensor& rows, const at::Tensor& act) { ops::swiglu_forward(rows, act); }
  static void backward(const at::Tensor& rows, const at::Tensor& gact) { ops::swiglu_backward(rows, gact, rows, {}); }
};

/// The squared ReLU (So et al. 2021).
struct SquaredRelu {
  static void forward(const at::Tensor& rows, const at::Tensor& act) { ops::squared_relu_forward(rows, act); }
  static void backward(const at::Tensor& rows, const at::Tensor& gact) { ops::squared_relu_backward(rows, gact, rows); }
};

}  // namespace

std::unique_ptr<const SubLayer> make_swiglu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<DenseFeedForward<SwiGlu>>(spec);
}

std::unique_ptr<const SubLayer> make_squared_relu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<DenseFeedForward<SquaredRelu>>(spec);
}

}  // namespace qft::model

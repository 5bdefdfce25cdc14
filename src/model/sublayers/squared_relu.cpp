// Feed-forward of two matrices with the squared ReLU between them (So et al. 2021).
#include "qft/ops/squared_relu.h"

#include "kinds.h"

namespace qft::model {
namespace {

// By order in the description (squared_relu_spec.cpp).
enum Linear : std::size_t { kUp, kDown };
enum Saved : std::size_t { kUpRows };
enum Scratch : std::size_t { kAct, kGradAct };

class SquaredRelu final : public SubLayer {
 public:
  using SubLayer::SubLayer;

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    const at::Tensor act = pass.scratch(spec_.scratch[kAct]);
    ops::linear_forward(x, w.linears[kUp].weights, pass.dropout, s.tensors[kUpRows], s.lora[kUp], pass.workspace);
    ops::squared_relu_forward(s.tensors[kUpRows], act);
    ops::linear_forward(act, w.linears[kDown].weights, pass.dropout, out, s.lora[kDown], pass.workspace);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &up = w.linears[kUp], &down = w.linears[kDown];
    const at::Tensor& rows = s.tensors[kUpRows];
    const at::Tensor gact = pass.scratch(spec_.scratch[kGradAct]);
    at::Tensor act;  // cheaper to compute again than to keep
    if (down.needs_input()) {
      act = pass.scratch(spec_.scratch[kAct]);
      ops::squared_relu_forward(rows, act);
    }
    ops::linear_backward(gout, act, down.weights, pass.dropout, s.lora[kDown], gact, ops::GradMode::write, down.grads,
                         pass.workspace);
    ops::squared_relu_backward(rows, gact, rows);
    ops::linear_backward(rows, x, up.weights, pass.dropout, s.lora[kUp], gx, mode, up.grads, pass.workspace);
  }
};

}  // namespace

std::unique_ptr<const SubLayer> make_squared_relu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<SquaredRelu>(spec);
}

}  // namespace qft::model

// Feed-forward with a gated activation (Shazeer 2020, SwiGLU).
#include "qft/ops/swiglu.h"

#include "kinds.h"

namespace qft::model {
namespace {

// By order in the description (swiglu_spec.cpp).
enum Linear : std::size_t { kGateUp, kDown };
enum Saved : std::size_t { kGateUpRows };
enum Scratch : std::size_t { kAct, kGradAct };

class SwiGlu final : public SubLayer {
 public:
  using SubLayer::SubLayer;

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    const at::Tensor act = pass.scratch(spec_.scratch[kAct]);
    ops::linear_forward(x, w.linears[kGateUp].weights, pass.dropout, s.tensors[kGateUpRows], s.lora[kGateUp], pass.workspace);
    ops::swiglu_forward(s.tensors[kGateUpRows], act);
    ops::linear_forward(act, w.linears[kDown].weights, pass.dropout, out, s.lora[kDown], pass.workspace);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &gate_up = w.linears[kGateUp], &down = w.linears[kDown];
    const at::Tensor& rows = s.tensors[kGateUpRows];
    const at::Tensor gact = pass.scratch(spec_.scratch[kGradAct]);
    at::Tensor act;  // cheaper to compute again than to keep
    if (down.needs_input()) {
      act = pass.scratch(spec_.scratch[kAct]);
      ops::swiglu_forward(rows, act);
    }
    ops::linear_backward(gout, act, down.weights, pass.dropout, s.lora[kDown], gact, ops::GradMode::write, down.grads,
                         pass.workspace);
    ops::swiglu_backward(rows, gact, rows, {});
    ops::linear_backward(rows, x, gate_up.weights, pass.dropout, s.lora[kGateUp], gx, mode, gate_up.grads, pass.workspace);
  }
};

}  // namespace

std::unique_ptr<const SubLayer> make_swiglu(const ModelConfig& /*config*/, const SubLayerSpec& spec) {
  return std::make_unique<SwiGlu>(spec);
}

}  // namespace qft::model

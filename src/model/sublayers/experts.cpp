// Feed-forward by experts: a few per token, and optionally a shared expert for all tokens. An expert's weight scales the input of
// its last linear. The sum equals weight * down(activation), but the weight's gradient needs no second product.
#include "qft/ops/experts.h"

#include "qft/ops/activation.h"

#include <algorithm>

#include "kinds.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>

namespace qft::model {
namespace {

// In the order of the description (kind_specs.cpp). The kShared... entries exist only with a shared expert.
enum Saved : std::size_t { kProbabilities, kLogSums, kExperts, kWeights, kGateUpRows, kSharedRows, kSharedGate };
enum Scratch : std::size_t { kX, kAct, kY, kGradAct, kSharedAct, kSharedGradAct, kSharedY };
enum Linear : std::size_t { kRouter, kGateUp, kSharedGateUp, kSharedRouter };

class Experts final : public SubLayer {
 public:
  Experts(const ModelConfig& c, const SubLayerSpec& spec)
      : SubLayer(spec),
        count_(c.experts.count),
        per_token_(c.experts.per_token),
        widest_(std::max(2 * c.experts.intermediate_size, c.hidden_size)),
        shared_(c.experts.shared_size > 0),
        normalise_(c.experts.normalise),
        down_(shared_ ? 4 : 2),
        shared_down_(5) {}

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    const at::Tensor logits = room(pass, "experts_logits", count_);
    ops::linear_forward(x, w.linears[kRouter].weights, pass.dropout, logits, s.lora[kRouter], pass.workspace);
    ops::route_forward(logits, normalise_, s.tensors[kProbabilities], s.tensors[kLogSums].view({-1}), s.tensors[kExperts],
                       s.tensors[kWeights]);
    const ops::ExpertRows assignment = ops::group_by_expert(s.tensors[kExperts], count_, pass.workspace);
    if (pass.on_expert_rows != nullptr) (*pass.on_expert_rows)(assignment.begins);
    const ops::LoraDropout dropout = dropout_of(pass, assignment);
    const at::Tensor rows = expert_rows(pass, kX), act = expert_rows(pass, kAct), y = expert_rows(pass, kY);
    ops::gather_rows(x, assignment, rows);
    ops::experts_forward(assignment, rows, w.linears[kGateUp].weights, 2, dropout, gate_up(s), s.lora[kGateUp], pass.workspace);
    ops::swiglu_forward(gate_up(s), act);
    act.mul_(weights_of_rows(s, assignment));
    ops::experts_forward(assignment, act, w.linears[down_].weights, 1, dropout, y, s.lora[down_], pass.workspace);
    ops::sum_rows(y, assignment, out, ops::GradMode::write);
    if (shared_) forward_shared(w, x, pass, s, out);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const ops::ExpertRows assignment = ops::group_by_expert(s.tensors[kExperts], count_, pass.workspace);
    const ops::LoraDropout dropout = dropout_of(pass, assignment);
    const Projection &in = w.linears[kGateUp], &down = w.linears[down_];
    const at::Tensor act = expert_rows(pass, kAct), gact = expert_rows(pass, kGradAct), weights = weights_of_rows(s, assignment);
    const at::Tensor rows = expert_rows(pass, kX), gy = expert_rows(pass, kY);
    ops::gather_rows(gout, assignment, gy);
    ops::swiglu_forward(gate_up(s), act);
    const at::Tensor gweights = backward_down(pass, assignment, down, s, dropout, {act, weights, gy, gact});
    ops::swiglu_backward(gate_up(s), gact, gate_up(s), {});
    if (in.needs_input()) ops::gather_rows(x, assignment, rows);
    ops::experts_backward(
        assignment,
        {.gy = gate_up(s), .x = in.needs_input() ? rows : at::Tensor(), .saved = s.lora[kGateUp], .gx = gy, .mode = mode},
        in.weights, 2, dropout, in.grads, pass.workspace);
    if (mode != ops::GradMode::skip) ops::sum_rows(gy, assignment, gx, mode);
    const ops::GradMode more = mode == ops::GradMode::skip ? mode : ops::GradMode::accumulate;
    backward_router(w, x, pass, s, gweights, gx, more);
    if (shared_) backward_shared(w, x, pass, s, gout, gx, more);
  }

  void observe(std::int64_t layer, const SubLayerSaved& s, const Routing& routing) const override {
    routing.add(layer, s.tensors[kProbabilities], s.tensors[kExperts], s.tensors[kLogSums].view({-1}));
  }

  std::int64_t operation_scratch_bytes(const BatchShape& sizes, at::ScalarType dtype, bool backward,
                                       const KernelChoice& paths) const override {
    const auto item = static_cast<std::int64_t>(c10::elementSize(dtype == at::kDouble ? at::kDouble : at::kFloat));
    const std::int64_t router = sizes.tokens * count_ * item;  // logits; in backward, the terms of their gradient
    const std::int64_t grouped = paths.on_cpu() ? 0 : ops::grouped_product_bytes(sizes.tokens * per_token_, widest_, dtype);
    return ops::expert_rows_bytes(sizes.tokens, per_token_) + (backward ? 4 : 2) * router + grouped;
  }

  /// The host learns the rows' experts only after the router has run.
  bool can_be_captured(c10::Device device, at::ScalarType /*dtype*/) const override { return device.is_cpu(); }

 private:
  static at::Tensor room(const LayerPass& pass, const char* name, std::int64_t columns) {
    return pass.workspace.get(name, {pass.tokens(), columns}, pass.dtype);
  }
  /// Returns scratch for all experts' rows, one row per token and chosen expert.
  at::Tensor expert_rows(const LayerPass& pass, Scratch which) const {
    const at::Tensor t = pass.scratch(spec_.scratch[which]);
    return t.view({t.size(0) * per_token_, t.size(1) / per_token_});
  }
  at::Tensor gate_up(const SubLayerSaved& s) const {
    const at::Tensor& t = s.tensors[kGateUpRows];
    return t.view({t.size(0) * per_token_, t.size(1) / per_token_});
  }
  static ops::LoraDropout dropout_of(const LayerPass& pass, const ops::ExpertRows& assignment) {
    ops::LoraDropout dropout = pass.dropout;
    dropout.rows = dropout.p > 0.0 ? ops::expert_row_identity(pass.dropout.rows, assignment) : ops::RowIdentity{};
    return dropout;
  }
  /// Returns [rows, 1] in compute dtype.
  static at::Tensor weights_of_rows(const SubLayerSaved& s, const ops::ExpertRows& assignment) {
    const at::Tensor rows = at::empty({assignment.count()}, s.tensors[kWeights].options());
    rows.index_copy_(0, assignment.places, s.tensors[kWeights].view({-1}));
    return rows.unsqueeze(1);
  }

  /// Row tensors of the backward pass.
  struct Rows {
    const at::Tensor &act, &weights, &gy, &gact;
  };
  /// Writes the activation's gradient into `gact`. Returns the routing weights' gradient, [T, per_token] in statistics_dtype().
  at::Tensor backward_down(const LayerPass& pass, const ops::ExpertRows& assignment, const Projection& down,
                           const SubLayerSaved& s, const ops::LoraDropout& dropout, const Rows& r) const {
    const auto wide = s.tensors[kProbabilities].scalar_type();
    const at::Tensor unweighted = r.act.clone();
    r.act.mul_(r.weights);
    ops::experts_backward(assignment, {.gy = r.gy, .x = r.act, .saved = s.lora[down_], .gx = r.gact}, down.weights, 1, dropout,
                          down.grads, pass.workspace);
    const at::Tensor of_rows = at::sum(r.gact.to(wide) * unweighted, 1);
    r.gact.mul_(r.weights);
    return at::index_select(of_rows, 0, assignment.places).view({pass.tokens(), per_token_});
  }

  void backward_router(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                       const at::Tensor& gweights, const at::Tensor& gx, ops::GradMode mode) const {
    const Projection& router = w.linears[kRouter];
    const at::Tensor glogits = room(pass, "experts_logits", count_);
    ops::RouteGrads grads{gweights, {}, {}};
    const RoutingLoss& loss = pass.routing_loss;
    if (pass.routing != nullptr && loss.balance != 0.0) grads.probabilities = pass.routing->balance_gradient().mul_(loss.balance);
    if (pass.routing != nullptr && loss.z != 0.0)
      grads.log_sums = pass.routing->square_gradient(s.tensors[kLogSums].view({-1})).mul_(loss.z);
    ops::route_backward(s.tensors[kProbabilities], s.tensors[kExperts], normalise_, grads, glogits);
    ops::linear_backward({.gy = glogits, .x = x, .saved = s.lora[kRouter], .gx = gx, .mode = mode}, router.weights, pass.dropout,
                         router.grads, pass.workspace);
  }

  void forward_shared(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                      const at::Tensor& out) const {
    const at::Tensor act = pass.scratch(spec_.scratch[kSharedAct]), y = pass.scratch(spec_.scratch[kSharedY]);
    const at::Tensor &rows = s.tensors[kSharedRows], &gate = s.tensors[kSharedGate];
    ops::linear_forward(x, w.linears[kSharedGateUp].weights, pass.dropout, rows, s.lora[kSharedGateUp], pass.workspace);
    ops::linear_forward(x, w.linears[kSharedRouter].weights, pass.dropout, gate, s.lora[kSharedRouter], pass.workspace);
    gate.sigmoid_();
    ops::swiglu_forward(rows, act);
    act.mul_(gate);
    ops::linear_forward(act, w.linears[shared_down_].weights, pass.dropout, y, s.lora[shared_down_], pass.workspace);
    out.add_(y);
  }

  void backward_shared(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                       const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const {
    const Projection &in = w.linears[kSharedGateUp], &router = w.linears[kSharedRouter], &down = w.linears[shared_down_];
    const at::Tensor act = pass.scratch(spec_.scratch[kSharedAct]), gact = pass.scratch(spec_.scratch[kSharedGradAct]);
    const at::Tensor &rows = s.tensors[kSharedRows], &gate = s.tensors[kSharedGate];
    const auto wide = s.tensors[kProbabilities].scalar_type();
    ops::swiglu_forward(rows, act);
    const at::Tensor ungated = act.clone();
    act.mul_(gate);
    ops::linear_backward({.gy = gout, .x = act, .saved = s.lora[shared_down_], .gx = gact}, down.weights, pass.dropout,
                         down.grads, pass.workspace);
    const at::Tensor open = gate.to(wide), ggate = at::sum(gact.to(wide) * ungated, 1, /*keepdim=*/true);
    gact.mul_(gate);
    ops::swiglu_backward(rows, gact, rows, {});
    ops::linear_backward({.gy = rows, .x = x, .saved = s.lora[kSharedGateUp], .gx = gx, .mode = mode}, in.weights, pass.dropout,
                         in.grads, pass.workspace);
    gate.copy_(ggate * open * (1.0 - open));
    ops::linear_backward({.gy = gate, .x = x, .saved = s.lora[kSharedRouter], .gx = gx, .mode = mode}, router.weights,
                         pass.dropout, router.grads, pass.workspace);
  }

  std::int64_t count_, per_token_, widest_;
  bool shared_, normalise_;
  std::size_t down_, shared_down_;
};

}  // namespace

std::unique_ptr<const SubLayer> make_experts(const ModelConfig& config, const SubLayerSpec& spec) {
  return std::make_unique<Experts>(config, spec);
}

}  // namespace qft::model

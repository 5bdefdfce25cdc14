// One transformer layer: x + o(attention(norm(x))), then + down(swiglu(gate_up(norm(.)))).
#include <cmath>

#include <ATen/ops/add.h>

#include "qft/model/ops/norm.h"
#include "qft/model/ops/swiglu.h"
#include "qft/model/transformer.h"

namespace qft::model {
namespace {

using ops::GradMode;

double attention_scale(const ModelConfig& c) { return 1.0 / std::sqrt(static_cast<double>(c.head_dim)); }

/// The columns that attention reads: with q/k norm q and k have a buffer of their own.
ops::QkvViews attention_inputs(const ModelConfig& c, const LayerSaved& s) {
  ops::QkvViews views = ops::split_qkv(s.qkv, c.num_heads, c.num_kv_heads, c.head_dim);
  if (s.qk.defined()) {
    views.q = ops::heads_view(s.qk, 0, c.num_heads, c.head_dim);
    views.k = ops::heads_view(s.qk, c.num_heads, c.num_kv_heads, c.head_dim);
  }
  return views;
}

}  // namespace

LayerSaved Transformer::room_for(const LayerWeights& w, const at::Tensor& x, Arena& arena) const {
  const ModelConfig& c = spec_.config;
  const std::int64_t tokens = x.size(0);
  const auto values = [&](std::int64_t columns) { return arena.alloc({tokens, columns}, dtype_); };
  const auto lora = [&](const Projection& p) {
    const std::int64_t columns = ops::lora_saved_columns(p.weights);
    return columns == 0 ? at::Tensor() : values(columns);
  };
  LayerSaved s;
  s.x = x;
  s.rstd_input = arena.alloc({tokens}, statistics_dtype());
  s.qkv = values(c.qkv_size());
  s.h_qkv = lora(w.qkv);
  s.attention = values(c.q_size());
  s.lse = arena.alloc({c.num_heads, tokens}, statistics_dtype());
  if (c.qk_norm) {
    s.qk = values(c.q_size() + c.kv_size());
    s.rstd_q = arena.alloc({tokens, c.num_heads}, statistics_dtype());
    s.rstd_k = arena.alloc({tokens, c.num_kv_heads}, statistics_dtype());
  }
  s.h_o = lora(w.o);
  s.x_mid = values(c.hidden_size);
  s.rstd_post = arena.alloc({tokens}, statistics_dtype());
  s.gate_up = values(2 * c.intermediate_size);
  s.h_gate_up = lora(w.gate_up);
  s.h_down = lora(w.down);
  return s;
}

void Transformer::attention_block(const LayerWeights& w, const MicroInput& in, const LayerSaved& s, int layer,
                                  const DropoutPass& dropout) {
  const ModelConfig& c = spec_.config;
  const at::Tensor normed = scratch("norm", in.num_tokens(), c.hidden_size);
  ops::rms_norm_forward(s.x, w.input_norm.value, c.rms_norm_eps, normed, s.rstd_input);
  ops::linear_forward(normed, w.qkv.weights, lora_dropout(dropout, layer, in), s.qkv, s.h_qkv, workspace_);
  if (c.qk_norm) {
    const auto raw = ops::split_qkv(s.qkv, c.num_heads, c.num_kv_heads, c.head_dim);
    ops::rms_norm_forward(raw.q, w.q_norm.value, c.rms_norm_eps, ops::heads_view(s.qk, 0, c.num_heads, c.head_dim),
                          s.rstd_q);
    ops::rms_norm_forward(raw.k, w.k_norm.value, c.rms_norm_eps,
                          ops::heads_view(s.qk, c.num_heads, c.num_kv_heads, c.head_dim), s.rstd_k);
  }
  const at::Tensor& rotated = c.qk_norm ? s.qk : s.qkv;
  ops::rope(ops::heads_view(rotated, 0, c.num_heads + c.num_kv_heads, c.head_dim), in.positions, rope_,
            ops::RopeDirection::forward);
  ops::attention_forward(attention_inputs(c, s), in.sequences, attention_scale(c), s.attention, s.lse, workspace_);
}

void Transformer::layer_forward(int layer, const LayerWeights& w, const MicroInput& in, const DropoutPass& dropout,
                                const at::Tensor& y, const LayerSaved& s) {
  const ModelConfig& c = spec_.config;
  const std::int64_t tokens = in.num_tokens();
  attention_block(w, in, s, layer, dropout);

  const auto drop = lora_dropout(dropout, layer, in);
  const at::Tensor branch = scratch("branch", tokens, c.hidden_size);
  ops::linear_forward(s.attention, w.o.weights, drop, branch, s.h_o, workspace_);
  at::add_out(const_cast<at::Tensor&>(s.x_mid), s.x, branch);

  const at::Tensor normed = scratch("norm", tokens, c.hidden_size);
  const at::Tensor act = scratch("act", tokens, c.intermediate_size);
  ops::rms_norm_forward(s.x_mid, w.post_norm.value, c.rms_norm_eps, normed, s.rstd_post);
  ops::linear_forward(normed, w.gate_up.weights, drop, s.gate_up, s.h_gate_up, workspace_);
  ops::swiglu_forward(s.gate_up, act);
  ops::linear_forward(act, w.down.weights, drop, branch, s.h_down, workspace_);
  at::add_out(const_cast<at::Tensor&>(y), s.x_mid, branch);
}

void Transformer::attention_block_backward(const LayerWeights& w, const MicroInput& in, const LayerSaved& s,
                                           const at::Tensor& gout, const at::Tensor& gqkv) {
  const ModelConfig& c = spec_.config;
  const auto grads = ops::split_qkv(gqkv, c.num_heads, c.num_kv_heads, c.head_dim);
  ops::attention_backward(gout, attention_inputs(c, s), s.attention, s.lse, in.sequences, attention_scale(c), grads,
                          workspace_);
  ops::rope(ops::heads_view(gqkv, 0, c.num_heads + c.num_kv_heads, c.head_dim), in.positions, rope_,
            ops::RopeDirection::backward);
  if (!c.qk_norm) return;
  const auto raw = ops::split_qkv(s.qkv, c.num_heads, c.num_kv_heads, c.head_dim);
  ops::rms_norm_backward(grads.q, raw.q, w.q_norm.value, s.rstd_q, {}, grads.q, w.q_norm.grad, workspace_);
  ops::rms_norm_backward(grads.k, raw.k, w.k_norm.value, s.rstd_k, {}, grads.k, w.k_norm.grad, workspace_);
}

void Transformer::layer_backward(int layer, const LayerWeights& w, const MicroInput& in, const DropoutPass& dropout,
                                 const LayerSaved& s, const at::Tensor& g, bool needs_input_grad) {
  const ModelConfig& c = spec_.config;
  const std::int64_t tokens = in.num_tokens();
  const auto drop = lora_dropout(dropout, layer, in);
  const at::Tensor gact = scratch("gact", tokens, c.intermediate_size);
  const at::Tensor gbranch = scratch("branch", tokens, c.hidden_size);
  const at::Tensor normed = scratch("norm", tokens, c.hidden_size);

  // Norm outputs and the activation are cheaper to compute again than to keep.
  at::Tensor act;
  if (w.down.needs_input()) {
    act = scratch("act", tokens, c.intermediate_size);
    ops::swiglu_forward(s.gate_up, act);
  }
  ops::linear_backward(g, act, w.down.weights, drop, s.h_down, gact, GradMode::write, w.down.grads, workspace_);
  ops::swiglu_backward(s.gate_up, gact, s.gate_up, {});
  if (w.gate_up.needs_input())
    ops::rms_norm_forward(s.x_mid, w.post_norm.value, c.rms_norm_eps, normed, s.rstd_post);
  ops::linear_backward(s.gate_up, normed, w.gate_up.weights, drop, s.h_gate_up, gbranch, GradMode::write,
                       w.gate_up.grads, workspace_);
  ops::rms_norm_backward(gbranch, s.x_mid, w.post_norm.value, s.rstd_post, g, g, w.post_norm.grad, workspace_);

  const at::Tensor gattention = scratch("gattention", tokens, c.q_size());
  const at::Tensor gqkv = scratch("gqkv", tokens, c.qkv_size());
  ops::linear_backward(g, s.attention, w.o.weights, drop, s.h_o, gattention, GradMode::write, w.o.grads, workspace_);
  attention_block_backward(w, in, s, gattention, gqkv);
  if (w.qkv.needs_input()) ops::rms_norm_forward(s.x, w.input_norm.value, c.rms_norm_eps, normed, s.rstd_input);
  // The norm's own gradient needs gbranch even where nothing below trains.
  const bool needs_gbranch = needs_input_grad || w.input_norm.grad.defined();
  ops::linear_backward(gqkv, normed, w.qkv.weights, drop, s.h_qkv, gbranch,
                       needs_gbranch ? GradMode::write : GradMode::skip, w.qkv.grads, workspace_);
  if (needs_gbranch)
    ops::rms_norm_backward(gbranch, s.x, w.input_norm.value, s.rstd_input, g, g, w.input_norm.grad, workspace_);
}

}  // namespace qft::model

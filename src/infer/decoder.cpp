#include "qft/infer/decoder.h"

#include <cmath>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "qft/core/error.h"
#include "qft/model/ops/attention.h"
#include "qft/model/ops/embedding.h"
#include "qft/model/ops/norm.h"
#include "qft/model/ops/swiglu.h"

namespace qft::infer {
namespace ops = model::ops;

Decoder::Decoder(parallel::Instance& instance, std::int64_t capacity)
    : instance_(instance),
      cache_(instance.spec().config, capacity, instance.transformer().dtype(), instance.transformer().device()) {
  const auto& spec = instance.spec();
  const auto flat = [&](int unit) {
    const auto& b = instance.store().acquire(unit);
    return model::FlatBuffers{b.frozen, b.trainable, {}};
  };
  embedding_ = model::bind_weight(spec.units[0], model::TensorKind::embed_tokens, flat(0));
  for (int u = 1; u < spec.head_unit(); ++u)
    layers_.push_back(model::bind_layer(spec, spec.units[static_cast<std::size_t>(u)], flat(u)));
  const auto head = flat(spec.head_unit());
  final_norm_ = model::bind_weight(spec.units.back(), model::TensorKind::final_norm, head);
  head_ = spec.config.tie_word_embeddings ? embedding_
                                          : model::bind_weight(spec.units.back(), model::TensorKind::lm_head, head);
  instance.transformer().ensure_positions(capacity);
}

Decoder::~Decoder() {
  for (int u = 0; u < instance_.spec().num_units(); ++u) instance_.store().release(u);
}

at::Tensor Decoder::forward(std::span<const std::int32_t> tokens) {
  const c10::InferenceMode no_autograd;
  auto& t = instance_.transformer();
  const auto count = static_cast<std::int64_t>(tokens.size());
  QFT_ASSERT(count > 0, "no token to decode");
  const auto ids = at::from_blob(const_cast<std::int32_t*>(tokens.data()),  // NOLINT: from_blob takes no const
                                 {count}, at::kInt).to(t.device());
  const auto positions = at::arange(cache_.length(), cache_.length() + count, at::TensorOptions().dtype(at::kInt).device(t.device()));
  at::Tensor x = t.workspace().get("decode.x", {count, instance_.spec().config.hidden_size}, t.dtype());
  ops::embedding_forward(ids, embedding_.value, x);
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) layer(i, positions, x);
  cache_.advance(count);
  return t.logits(final_norm_, head_, x.narrow(0, count - 1, 1)).view({-1}).to(at::kCPU, at::kFloat);
}

void Decoder::layer(int index, const at::Tensor& positions, at::Tensor& x) {
  const auto& c = instance_.spec().config;
  auto& t = instance_.transformer();
  auto& ws = t.workspace();
  const model::LayerWeights& w = layers_[static_cast<std::size_t>(index)];
  const std::int64_t count = x.size(0);
  const auto scratch = [&](const char* name, std::int64_t columns) { return ws.get(name, {count, columns}, t.dtype()); };
  const auto lora = [&](const model::Projection& p) {
    const std::int64_t columns = ops::lora_saved_columns(p.weights);
    return columns > 0 ? scratch("decode.lora", columns) : at::Tensor();
  };
  const auto rstd = [&](std::int64_t columns) { return ws.get("decode.rstd", {count, columns}, t.statistics_dtype()); };
  const auto norm = scratch("decode.norm", c.hidden_size), branch = scratch("decode.branch", c.hidden_size);

  const auto qkv = scratch("decode.qkv", c.qkv_size());
  ops::rms_norm_forward(x, w.input_norm.value, c.rms_norm_eps, norm, rstd(1).view({count}));
  ops::linear_forward(norm, w.qkv.weights, {}, qkv, lora(w.qkv), ws);
  const auto views = ops::split_qkv(qkv, c.num_heads, c.num_kv_heads, c.head_dim);
  if (c.qk_norm) {
    ops::rms_norm_forward(views.q, w.q_norm.value, c.rms_norm_eps, views.q, rstd(c.num_heads));
    ops::rms_norm_forward(views.k, w.k_norm.value, c.rms_norm_eps, views.k, rstd(c.num_kv_heads));
  }
  ops::rope(ops::heads_view(qkv, 0, c.num_heads + c.num_kv_heads, c.head_dim), positions, t.rope(), ops::RopeDirection::forward);
  cache_.store(index, views.k, views.v);
  const auto attention = scratch("decode.attention", c.q_size());
  const std::int64_t total = cache_.length() + count;
  ops::attention_decode(views.q, cache_.keys(index, total), cache_.values(index, total),
                        1.0 / std::sqrt(static_cast<double>(c.head_dim)), attention, ws);
  ops::linear_forward(attention, w.o.weights, {}, branch, lora(w.o), ws);
  x.add_(branch);

  const auto gate_up = scratch("decode.gate_up", 2 * c.intermediate_size), act = scratch("decode.act", c.intermediate_size);
  ops::rms_norm_forward(x, w.post_norm.value, c.rms_norm_eps, norm, rstd(1).view({count}));
  ops::linear_forward(norm, w.gate_up.weights, {}, gate_up, lora(w.gate_up), ws);
  ops::swiglu_forward(gate_up, act);
  ops::linear_forward(act, w.down.weights, {}, branch, lora(w.down), ws);
  x.add_(branch);
}

}  // namespace qft::infer

#include "qft/infer/decoder.h"

#include <cmath>

#include <ATen/ops/index_select.h>
#include <c10/core/InferenceMode.h>

#include "qft/core/error.h"
#include "qft/device/upload.h"
#include "qft/model/ops/attention.h"
#include "qft/model/ops/embedding.h"
#include "qft/model/ops/norm.h"
#include "qft/model/ops/swiglu.h"

namespace qft::infer {
namespace ops = model::ops;

Decoder::Decoder(parallel::Instance& instance, std::int64_t capacity, std::size_t slots)
    : Decoder(instance.transformer(), instance.weights(), capacity, slots) {}

Decoder::Decoder(model::Transformer& transformer, parallel::WeightReader& weights, std::int64_t capacity, std::size_t slots)
    : transformer_(transformer), weights_(weights) {
  const model::ModelSpec& spec = transformer.spec();
  for (std::size_t s = 0; s < slots; ++s) caches_.emplace_back(spec.config, capacity, transformer.dtype(), transformer.device());
  const auto flat = [&](int unit) {
    const auto& b = weights_.acquire(unit);
    return model::FlatBuffers{b.frozen, b.trainable, {}};
  };
  embedding_ = model::bind_weight(spec.units[0], model::TensorKind::embed_tokens, flat(0));
  for (int u = 1; u < spec.head_unit(); ++u)
    layers_.push_back(model::bind_layer(spec, spec.units[static_cast<std::size_t>(u)], flat(u)));
  const auto head = flat(spec.head_unit());
  final_norm_ = model::bind_weight(spec.units.back(), model::TensorKind::final_norm, head);
  head_ = spec.config.tie_word_embeddings ? embedding_
                                          : model::bind_weight(spec.units.back(), model::TensorKind::lm_head, head);
  transformer.ensure_positions(capacity);
}

Decoder::~Decoder() {
  for (int u = 0; u < transformer_.spec().num_units(); ++u) weights_.release(u);
}

at::Tensor Decoder::forward(std::span<const std::int32_t> tokens) {
  const Input input{0, tokens};
  return forward({&input, 1}).view({-1});
}

at::Tensor Decoder::forward(std::span<const Input> inputs) {
  const c10::InferenceMode no_autograd;
  QFT_ASSERT(!inputs.empty(), "no sequence to decode");
  const auto count = static_cast<std::int64_t>(inputs.size());
  const at::Tensor logits = results_.get("logits", {count, head_.value.size(0)}, at::kFloat);
  for (std::size_t begin = 0, end = 0; begin < inputs.size(); begin = end) {
    end = group_end(inputs, begin);
    forward_group(inputs.subspan(begin, end - begin),
                  logits.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)));
  }
  return logits;
}

// On a GPU everything goes at once. On the CPU groups keep the promise that company changes nothing.
std::size_t Decoder::group_end(std::span<const Input> inputs, std::size_t begin) const {
  if (!transformer_.device().is_cpu()) return inputs.size();
  std::size_t end = begin + 1;
  if (inputs[begin].tokens.size() > 1) return end;
  while (end < inputs.size() && inputs[end].tokens.size() == 1 && end - begin < static_cast<std::size_t>(ops::kFewRows)) ++end;
  return end;
}

void Decoder::forward_group(std::span<const Input> inputs, const at::Tensor& logits) {
  auto& t = transformer_;
  std::vector<std::int32_t> ids, positions, last;
  for (const Input& in : inputs) {
    QFT_ASSERT(!in.tokens.empty(), "no token to decode in slot {}", in.slot);
    auto position = static_cast<std::int32_t>(caches_.at(in.slot).length());
    for (const std::int32_t id : in.tokens) {
      ids.push_back(id);
      positions.push_back(position++);
    }
    last.push_back(static_cast<std::int32_t>(ids.size()) - 1);
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  at::Tensor x = t.workspace().get("decode.x", {count, t.spec().config.hidden_size}, t.dtype());
  ops::embedding_forward(device::upload(ids, t.device()), embedding_.value, x);
  const at::Tensor at = device::upload(positions, t.device());
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) layer(i, inputs, at, x);
  for (const Input& in : inputs) caches_[in.slot].advance(static_cast<std::int64_t>(in.tokens.size()));
  if (count > static_cast<std::int64_t>(inputs.size())) x = at::index_select(x, 0, device::upload(last, t.device()));
  logits.copy_(t.logits(final_norm_, head_, x));
}

void Decoder::attention(int index, std::span<const Input> inputs, const at::Tensor& qkv, const at::Tensor& out) {
  const auto& c = transformer_.spec().config;
  const auto views = ops::split_qkv(qkv, c.num_heads, c.num_kv_heads, c.head_dim);
  sequences_.clear();
  std::int64_t row = 0;
  for (const Input& in : inputs) {
    const auto rows = static_cast<std::int64_t>(in.tokens.size());
    sequences_.push_back(caches_[in.slot].store(index, views.k.narrow(0, row, rows), views.v.narrow(0, row, rows)));
    row += rows;
  }
  ops::attention_decode(views.q, sequences_, 1.0 / std::sqrt(static_cast<double>(c.head_dim)), out, transformer_.workspace());
}

void Decoder::layer(int index, std::span<const Input> inputs, const at::Tensor& positions, at::Tensor& x) {
  auto& t = transformer_;
  const auto& c = t.spec().config;
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
  if (c.qk_norm) {
    const auto views = ops::split_qkv(qkv, c.num_heads, c.num_kv_heads, c.head_dim);
    ops::rms_norm_forward(views.q, w.q_norm.value, c.rms_norm_eps, views.q, rstd(c.num_heads));
    ops::rms_norm_forward(views.k, w.k_norm.value, c.rms_norm_eps, views.k, rstd(c.num_kv_heads));
  }
  ops::rope(ops::heads_view(qkv, 0, c.num_heads + c.num_kv_heads, c.head_dim), positions, t.rope(), ops::RopeDirection::forward);
  const auto attended = scratch("decode.attention", c.q_size());
  attention(index, inputs, qkv, attended);
  ops::linear_forward(attended, w.o.weights, {}, branch, lora(w.o), ws);
  x.add_(branch);

  const auto gate_up = scratch("decode.gate_up", 2 * c.intermediate_size), act = scratch("decode.act", c.intermediate_size);
  ops::rms_norm_forward(x, w.post_norm.value, c.rms_norm_eps, norm, rstd(1).view({count}));
  ops::linear_forward(norm, w.gate_up.weights, {}, gate_up, lora(w.gate_up), ws);
  ops::swiglu_forward(gate_up, act);
  ops::linear_forward(act, w.down.weights, {}, branch, lora(w.down), ws);
  x.add_(branch);
}

}  // namespace qft::infer

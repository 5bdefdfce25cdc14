// Causal self-attention with grouped query heads and rotary embedding; with norms of q and k (Qwen3) where the configuration has
// them.
#include "qft/core/error.h"
#include "qft/ops/norm.h"

#include <cmath>
#include <cstring>

#include "kinds.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

// By order in the description (attention_spec.cpp).
enum Linear : std::size_t { kQkv, kOutput };
enum Vector : std::size_t { kQNorm, kKNorm };
enum Saved : std::size_t {
  kQkvRows,  ///< projected; with norms of q and k as it was before these
  kAttended,
  kLogSumExp,
  kQk,
  kQStatistic,
  kKStatistic  ///< with norms: q and k normed and rotated
};
enum Scratch : std::size_t { kGradAttended, kGradQkv };

/// Keys and values of a sequence, allocated once.
struct KeysAndValues final : DecodeState {
  at::Tensor keys, values;  ///< [kv_heads, capacity, head_dim]
};

/// Rows [T, heads, head_dim] to places [heads, first + T, head_dim].
void store_rows(const at::Tensor& rows, const at::Tensor& cache, std::int64_t first) {
  const at::Tensor place = cache.narrow(1, first, rows.size(0));
  if (!rows.is_cpu()) {
    place.copy_(rows.transpose(0, 1));
    return;
  }
  // The few rows of a decoding step cost less by hand than the call of a copy.
  const auto element = static_cast<std::int64_t>(rows.element_size()), bytes = rows.size(2) * element;
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(place.data_ptr());
  for (std::int64_t h = 0; h < rows.size(1); ++h)
    for (std::int64_t t = 0; t < rows.size(0); ++t)
      std::memcpy(to + h * place.stride(0) * element + t * bytes, from + (t * rows.stride(0) + h * rows.stride(1)) * element,
                  static_cast<std::size_t>(bytes));
}

class Attention final : public SubLayer {
 public:
  Attention(const ModelConfig& c, const SubLayerSpec& spec)
      : SubLayer(spec),
        heads_(c.num_heads),
        kv_heads_(c.num_kv_heads),
        head_dim_(c.head_dim),
        qk_norm_(c.qk_norm),
        eps_(c.rms_norm_eps),
        options_{1.0 / std::sqrt(static_cast<double>(c.head_dim)), spec.window} {}

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    project(w, x, pass, s);
    ops::attention_forward(inputs(s), *pass.sequences, options_, s.tensors[kAttended], s.tensors[kLogSumExp], pass.workspace);
    ops::linear_forward(s.tensors[kAttended], w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
              const SubLayerSaved& s, const at::Tensor& out) const override {
    project(w, x, pass, s);
    const ops::QkvViews in = inputs(s);
    std::vector<ops::CachedSequence> cached;
    std::int64_t row = 0;
    for (const NewTokens& sequence : sequences) {
      const auto& state = static_cast<const KeysAndValues&>(*sequence.state);
      store_rows(in.k.narrow(0, row, sequence.count), state.keys, sequence.past);
      store_rows(in.v.narrow(0, row, sequence.count), state.values, sequence.past);
      cached.push_back({sequence.count, sequence.past + sequence.count, state.keys, state.values});
      row += sequence.count;
    }
    ops::attention_decode(in.q, cached, options_, s.tensors[kAttended], pass.workspace);
    ops::linear_forward(s.tensors[kAttended], w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &qkv = w.linears[kQkv], &output = w.linears[kOutput];
    const at::Tensor gattended = pass.scratch(spec_.scratch[kGradAttended]), gqkv = pass.scratch(spec_.scratch[kGradQkv]);
    ops::linear_backward(gout, s.tensors[kAttended], output.weights, pass.dropout, s.lora[kOutput], gattended,
                         ops::GradMode::write, output.grads, pass.workspace);
    const auto grads = ops::split_qkv(gqkv, heads_, kv_heads_, head_dim_);
    ops::attention_backward(gattended, inputs(s), s.tensors[kAttended], s.tensors[kLogSumExp], *pass.sequences, options_, grads,
                            pass.workspace);
    ops::rope(q_and_k(gqkv), pass.positions, pass.rope, ops::RopeDirection::backward);
    if (qk_norm_) {
      const auto raw = ops::split_qkv(s.tensors[kQkvRows], heads_, kv_heads_, head_dim_);
      const Weight &q = w.vectors[kQNorm], &k = w.vectors[kKNorm];
      ops::rms_norm_backward(grads.q, raw.q, q.value, s.tensors[kQStatistic], {}, grads.q, q.grad, pass.workspace);
      ops::rms_norm_backward(grads.k, raw.k, k.value, s.tensors[kKStatistic], {}, grads.k, k.grad, pass.workspace);
    }
    ops::linear_backward(gqkv, x, qkv.weights, pass.dropout, s.lora[kQkv], gx, mode, qkv.grads, pass.workspace);
  }

  std::unique_ptr<DecodeState> make_state(std::int64_t capacity, at::ScalarType dtype, c10::Device device) const override {
    auto state = std::make_unique<KeysAndValues>();
    const auto options = at::TensorOptions().dtype(dtype).device(device);
    state->keys = at::empty({kv_heads_, capacity, head_dim_}, options);
    state->values = at::empty({kv_heads_, capacity, head_dim_}, options);
    return state;
  }

  std::int64_t state_bytes_per_token(at::ScalarType dtype) const override {
    return 2 * kv_heads_ * head_dim_ * static_cast<std::int64_t>(c10::elementSize(dtype));
  }

  std::int64_t operation_scratch_bytes(const ops::PackedSizes& sizes, at::ScalarType dtype, bool backward,
                                       ops::AttentionPath path) const override {
    return ops::attention_scratch_bytes(sizes, heads_, kv_heads_, head_dim_, dtype, backward, path);
  }

  bool can_be_captured(c10::Device device, at::ScalarType dtype) const override {
    return ops::attention_can_be_captured(device, dtype, head_dim_);
  }

 private:
  at::Tensor q_and_k(const at::Tensor& rows) const { return ops::heads_view(rows, 0, heads_ + kv_heads_, head_dim_); }

  /// The columns that attention reads: with norms q and k have a buffer of their own.
  ops::QkvViews inputs(const SubLayerSaved& s) const {
    ops::QkvViews views = ops::split_qkv(s.tensors[kQkvRows], heads_, kv_heads_, head_dim_);
    if (qk_norm_) {
      views.q = ops::heads_view(s.tensors[kQk], 0, heads_, head_dim_);
      views.k = ops::heads_view(s.tensors[kQk], heads_, kv_heads_, head_dim_);
    }
    return views;
  }

  /// q, k and v as attention reads them.
  void project(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor& rows = s.tensors[kQkvRows];
    ops::linear_forward(x, w.linears[kQkv].weights, pass.dropout, rows, s.lora[kQkv], pass.workspace);
    if (qk_norm_) {
      const auto raw = ops::split_qkv(rows, heads_, kv_heads_, head_dim_);
      const auto normed = inputs(s);
      ops::rms_norm_forward(raw.q, w.vectors[kQNorm].value, eps_, normed.q, s.tensors[kQStatistic]);
      ops::rms_norm_forward(raw.k, w.vectors[kKNorm].value, eps_, normed.k, s.tensors[kKStatistic]);
    }
    ops::rope(q_and_k(qk_norm_ ? s.tensors[kQk] : rows), pass.positions, pass.rope, ops::RopeDirection::forward);
  }

  std::int64_t heads_, kv_heads_, head_dim_;
  bool qk_norm_;
  double eps_;
  ops::AttentionOptions options_;
};

}  // namespace

std::unique_ptr<const SubLayer> make_attention(const ModelConfig& config, const SubLayerSpec& spec) {
  return std::make_unique<Attention>(config, spec);
}

}  // namespace qft::model

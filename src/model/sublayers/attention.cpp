// Causal self-attention with grouped query heads and rotary embedding. Optional: norms of q and k (Qwen3, OLMo 2), and a gate for
// each head's columns (Qwen3-Next).
#include "qft/ops/activation.h"
#include "qft/ops/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kinds.h"
#include <ATen/ops/empty.h>

namespace qft::model {
namespace {

// In the order of the description (kind_specs.cpp).
enum Linear : std::size_t { kQkv, kOutput };
enum Vector : std::size_t { kQNorm, kKNorm };
enum Saved : std::size_t {
  kQkvRows,  ///< projected rows, before any norms of q and k
  kAttended,
  kLogSumExp,
  kQk,
  kQStatistic,
  kKStatistic  ///< from kQk on only with norms: q and k normed and rotated, and the norms' statistics
};
enum Scratch : std::size_t { kGradAttended, kGradQkv, kGated, kGradQk, kSentQk, kGradSequenceAttended, kGradSequenceQkv };

/// A sequence's keys and values, allocated once.
struct KeysAndValues final : DecodeState {
  at::Tensor keys, values;  ///< [kv_heads, capacity, head_dim]
};

/// Copies rows [T, heads, head_dim] into the cache [heads, first + T, head_dim].
void store_rows(const at::Tensor& rows, const at::Tensor& cache, std::int64_t first) {
  const at::Tensor place = cache.narrow(1, first, rows.size(0));
  if (!rows.is_cpu()) {
    place.copy_(rows.transpose(0, 1));
    return;
  }
  // For the few rows of a decoding step, memcpy is cheaper than a copy kernel's call.
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
        sequence_heads_(spec.sequences.any() ? spec.sequences.mine() : SequenceHeads{}),
        sequence_qkv_(c.qk_norm != QkNorm::none ? kKStatistic + 1 : kLogSumExp + 1),
        heads_(spec.heads.heads.count),
        kv_heads_(spec.heads.key_heads.count),
        head_dim_(c.head_dim),
        rotary_dim_(c.rotary_dim()),
        qk_norm_(c.qk_norm != QkNorm::none),
        normed_whole_(c.qk_norm == QkNorm::whole),
        q_columns_(c.q_size()),
        k_columns_(c.kv_size()),
        gated_(c.attention_gate),
        norm_(norm_weight(c)),
        eps_(c.rms_norm_eps),
        options_{1.0 / std::sqrt(static_cast<double>(c.head_dim)), spec.window} {}

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    project(w, x, pass, s);
    attend(pass, s);
    ops::linear_forward(gated(pass, s), w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
              const SubLayerSaved& s, const at::Tensor& out) const override {
    project(w, x, pass, s);
    const ops::QkvViews in = inputs(pass, s);
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
    ops::linear_forward(gated(pass, s), w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &qkv = w.linears[kQkv], &output = w.linears[kOutput];
    const at::Tensor gattended = pass.scratch(spec_.scratch[kGradAttended]), gqkv = pass.scratch(spec_.scratch[kGradQkv]);
    ops::linear_backward({.gy = gout, .x = gated(pass, s), .saved = s.lora[kOutput], .gx = gattended}, output.weights,
                         pass.dropout, output.grads, pass.workspace);
    if (gated_) ops::head_gate_backward(gattended, s.tensors[kAttended], gates(s.tensors[kQkvRows]), gates(gqkv));
    const ops::QkvViews raw_grads = raw(gqkv), grads = inputs(gqkv, gated_ ? pass.scratch(spec_.scratch[kGradQk]) : gqkv);
    attend_backward(pass, s, gattended, grads);
    rotate(gated_ ? pass.scratch(spec_.scratch[kGradQk]) : gqkv, pass, ops::RopeDirection::backward);
    if (qk_norm_) {
      const auto before = raw(s.tensors[kQkvRows]);
      const Weight &q = w.vectors[kQNorm], &k = w.vectors[kKNorm];
      ops::rms_norm_backward({.gy = normed(grads.q),
                              .x = normed(before.q),
                              .weight = q.value,
                              .rstd = statistic(s, kQStatistic),
                              .gx = normed(raw_grads.q),
                              .gweight = q.grad,
                              .form = norm_,
                              .shared = of_q(pass)},
                             pass.workspace);
      ops::rms_norm_backward({.gy = normed(grads.k),
                              .x = normed(before.k),
                              .weight = k.value,
                              .rstd = statistic(s, kKStatistic),
                              .gx = normed(raw_grads.k),
                              .gweight = k.grad,
                              .form = norm_,
                              .shared = of_k(pass)},
                             pass.workspace);
    }
    ops::linear_backward({.gy = gqkv, .x = x, .saved = s.lora[kQkv], .gx = gx, .mode = mode}, qkv.weights, pass.dropout,
                         qkv.grads, pass.workspace);
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

  std::int64_t operation_scratch_bytes(const BatchShape& sizes, at::ScalarType dtype, bool backward,
                                       const KernelChoice& paths) const override {
    const std::int64_t gate = gated_ ? ops::head_gate_scratch_bytes(sizes.tokens, heads_ * head_dim_, dtype, backward) : 0;
    const bool all = !spec_.sequences.any();
    return std::max(gate, ops::attention_scratch_bytes(sizes, all ? heads_ : sequence_heads_.heads.count,
                                                       all ? kv_heads_ : sequence_heads_.num_key_heads(), head_dim_, dtype,
                                                       backward, paths.attention));
  }

  bool can_be_captured(c10::Device device, at::ScalarType dtype) const override {
    return ops::attention_can_be_captured(device, dtype, head_dim_);
  }

 private:
  /// Rotates q and k, the first columns of each row.
  void rotate(const at::Tensor& rows, const LayerPass& pass, ops::RopeDirection direction) const {
    const at::Tensor heads = ops::heads_view(rows, 0, heads_ + kv_heads_, head_dim_);
    ops::rope(heads.narrow(2, 0, rotary_dim_), pass.positions, pass.rope, direction);
  }

  /// Returns q, k and v of projected rows. With gates, each head's gate follows its q.
  ops::QkvViews raw(const at::Tensor& rows) const {
    if (!gated_) return ops::split_qkv(rows, heads_, kv_heads_, head_dim_);
    return {ops::heads_view(rows, 0, heads_, 2 * head_dim_).narrow(2, 0, head_dim_),
            ops::heads_view(rows, 2 * heads_, kv_heads_, head_dim_),
            ops::heads_view(rows, 2 * heads_ + kv_heads_, kv_heads_, head_dim_)};
  }
  at::Tensor gates(const at::Tensor& rows) const {
    return ops::heads_view(rows, 0, heads_, 2 * head_dim_).narrow(2, head_dim_, head_dim_);
  }

  /// Returns attention's inputs, or their gradients: v lies in `rows`; q and k are the first columns of `qk`, which may be
  /// `rows`.
  ops::QkvViews inputs(const at::Tensor& rows, const at::Tensor& qk) const {
    return {ops::heads_view(qk, 0, heads_, head_dim_), ops::heads_view(qk, heads_, kv_heads_, head_dim_), raw(rows).v};
  }
  ops::QkvViews inputs(const LayerPass& pass, const SubLayerSaved& s) const { return inputs(s.tensors[kQkvRows], qk(pass, s)); }
  /// Returns the rows whose first columns are q and k as attention reads them.
  at::Tensor qk(const LayerPass& pass, const SubLayerSaved& s) const {
    if (!qk_norm_) return s.tensors[kQkvRows];
    return spec_.sequences.any() ? pass.scratch(spec_.scratch[kSentQk]) : s.tensors[kQk];
  }

  ops::QkvViews in_sequences(const at::Tensor& qkv) const {
    return ops::split_qkv(qkv, sequence_heads_.heads.count, sequence_heads_.num_key_heads(), head_dim_);
  }
  std::array<RowsOfHeads, 1> attended(const at::Tensor& rows) const {
    return {RowsOfHeads{ops::heads_view(rows, 0, heads_, head_dim_)}};
  }
  static std::array<RowsOfHeads, 3> parts(const ops::QkvViews& rows) {
    return {RowsOfHeads{rows.q}, {rows.k, /*of_keys=*/true}, {rows.v, /*of_keys=*/true}};
  }

  void attend(const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor &rows = s.tensors[kAttended], &lse = s.tensors[kLogSumExp];
    if (!spec_.sequences.any())
      return ops::attention_forward(inputs(pass, s), *pass.sequences, options_, rows, lse, pass.workspace);
    const at::Tensor &qkv = s.tensors[sequence_qkv_], &out = s.tensors[sequence_qkv_ + 1];
    exchange(pass).to_sequences(parts(inputs(pass, s)), qkv);
    ops::attention_forward(in_sequences(qkv), *pass.sequences, options_, out, lse, pass.workspace);
    exchange(pass).to_rows(out, attended(rows));
  }

  void attend_backward(const LayerPass& pass, const SubLayerSaved& s, const at::Tensor& gattended,
                       const ops::QkvViews& grads) const {
    const at::Tensor& lse = s.tensors[kLogSumExp];
    if (!spec_.sequences.any())
      return ops::attention_backward(
          {.gout = gattended, .in = inputs(pass, s), .out = s.tensors[kAttended], .lse = lse, .grads = grads}, *pass.sequences,
          options_, pass.workspace);
    const at::Tensor gout = pass.scratch(spec_.scratch[kGradSequenceAttended]),
                     gqkv = pass.scratch(spec_.scratch[kGradSequenceQkv]);
    exchange(pass).to_sequences(attended(gattended), gout);
    ops::attention_backward({.gout = gout,
                             .in = in_sequences(s.tensors[sequence_qkv_]),
                             .out = s.tensors[sequence_qkv_ + 1],
                             .lse = lse,
                             .grads = in_sequences(gqkv)},
                            *pass.sequences, options_, pass.workspace);
    exchange(pass).to_rows(gqkv, parts(grads));
  }

  /// Returns q or k [T, heads, head_dim] in the rows of its norm: one per head, or one per token.
  at::Tensor normed(const at::Tensor& heads) const {
    return normed_whole_ ? heads.view({heads.size(0), heads.size(1) * heads.size(2)}) : heads;
  }
  at::Tensor statistic(const SubLayerSaved& s, Saved which) const {
    return normed_whole_ ? s.tensors[which].squeeze(1) : s.tensors[which];
  }

  /// Returns the columns of a norm of all heads, which ranks share with the heads; of k, several ranks may have the same.
  ops::SharedColumns of_q(const LayerPass& pass) const { return columns(pass, q_columns_, true); }
  ops::SharedColumns of_k(const LayerPass& pass) const { return columns(pass, k_columns_, spec_.heads.holder == 0); }
  ops::SharedColumns columns(const LayerPass& pass, std::int64_t width, bool counted) const {
    if (!normed_whole_ || pass.tensor.alone()) return {};
    return {width, [&tensor = pass.tensor](const at::Tensor& sums) { tensor.sum(sums); }, counted};
  }

  /// Returns the output projection's input.
  at::Tensor gated(const LayerPass& pass, const SubLayerSaved& s) const {
    if (!gated_) return s.tensors[kAttended];
    const at::Tensor out = pass.scratch(spec_.scratch[kGated]);
    ops::head_gate_forward(s.tensors[kAttended], gates(s.tensors[kQkvRows]), out);
    return out;
  }

  /// Computes q, k and v for attention.
  void project(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor& rows = s.tensors[kQkvRows];
    ops::linear_forward(x, w.linears[kQkv].weights, pass.dropout, rows, s.lora[kQkv], pass.workspace);
    if (qk_norm_) {
      const auto before = raw(rows), after = inputs(pass, s);
      ops::rms_norm_forward(normed(before.q), w.vectors[kQNorm].value, eps_, normed(after.q), statistic(s, kQStatistic), norm_,
                            of_q(pass));
      ops::rms_norm_forward(normed(before.k), w.vectors[kKNorm].value, eps_, normed(after.k), statistic(s, kKStatistic), norm_,
                            of_k(pass));
    }
    rotate(qk(pass, s), pass, ops::RopeDirection::forward);
  }

  SequenceHeads sequence_heads_;  ///< the heads for which this rank has whole sequences, if context ranks share them
  std::size_t sequence_qkv_;      ///< their q, k and v among the saved tensors; attention's output follows
  std::int64_t heads_, kv_heads_, head_dim_, rotary_dim_;
  bool qk_norm_, normed_whole_;
  std::int64_t q_columns_, k_columns_;  ///< of all ranks
  bool gated_;
  ops::NormWeight norm_;
  double eps_;
  ops::AttentionOptions options_;
};

}  // namespace

std::unique_ptr<const SubLayer> make_attention(const ModelConfig& config, const SubLayerSpec& spec) {
  return std::make_unique<Attention>(config, spec);
}

}  // namespace qft::model

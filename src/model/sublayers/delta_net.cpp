// The gated delta net of Qwen3-Next and Qwen3.5: a short convolution over q, k and v, the gated delta rule, then a gated norm.
#include "qft/core/error.h"
#include "qft/ops/delta_gates.h"
#include "qft/ops/gated_delta.h"
#include "qft/ops/norm.h"
#include "qft/ops/short_convolution.h"

#include <algorithm>
#include <array>

#include "delta_mixer.h"
#include "kinds.h"
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

// In the order of the description (kind_specs.cpp).
enum Linear : std::size_t { kInput, kOutput };
enum Vector : std::size_t { kFilters, kTimeBias, kLogDecay, kNorm };
enum Saved : std::size_t { kRows, kDecay, kBeta, kValues, kStatistic, kStates, kSequenceRows };
enum Scratch : std::size_t {
  kConvolved,
  kNormed,
  kGradValues,
  kGradConvolved,
  kGradRows,
  kProjected,
  // from here on only if context ranks share the heads
  kSequenceConvolved,
  kSequenceValues,
  kGradSequenceConvolved,
  kGradSequenceRows
};

/// The last rows before the convolution, and the delta rule's state.
struct RecurrentState final : DecodeState {
  at::Tensor rows;  ///< [taps - 1, channels]
  ops::GatedDeltaState rule;
  ops::DeltaShape shape;

  bool can_truncate_to(std::int64_t length) const override { return length == rule.tokens; }
  void reset() override {
    rows.zero_();
    rule = ops::GatedDeltaState::make(shape, rule.state.scalar_type(), rule.state.device());
  }
};

at::ScalarType statistics_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

/// Returns the configuration with the heads of this rank.
DeltaNetConfig of_rank(DeltaNetConfig config, const HeadShare& heads) {
  config.key_heads = heads.key_heads.count;
  config.value_heads = heads.heads.count;
  return config;
}

class DeltaNet final : public SubLayer {
 public:
  DeltaNet(const ModelConfig& c, const SubLayerSpec& spec)
      : SubLayer(spec),
        d_(of_rank(c.delta_net, spec.heads)),
        rows_(d_),
        mixer_(spec.sequences.any() ? DeltaMixer(d_, spec.sequences.mine()) : rows_),
        eps_(c.rms_norm_eps) {}

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    project(w, x, pass, s);
    if (exchanged()) exchange(pass).to_sequences(sent(s.tensors[kRows]), s.tensors[kSequenceRows]);
    const at::Tensor &rows = mixed_rows(s), &decay = s.tensors[kDecay], &beta = s.tensors[kBeta];
    ops::delta_gates_forward(mixer_.gate_inputs(rows, w.vectors[kLogDecay].value, w.vectors[kTimeBias].value), decay, beta);
    const at::Tensor convolved = convolve(w, rows, pass);
    const at::Tensor values = exchanged() ? pass.scratch(spec_.scratch[kSequenceValues]) : s.tensors[kValues];
    ops::gated_delta_forward(mixer_.operands(convolved, decay, beta), *pass.sequences, mixer_.heads(values),
                             states(s, *pass.sequences), pass.workspace);
    if (exchanged()) exchange(pass).to_rows(values, of_values(s.tensors[kValues]));
    finish(w, pass, s, out);
  }

  void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
              const SubLayerSaved& s, const at::Tensor& out) const override {
    project(w, x, pass, s);
    const auto of_heads = [&](Saved saved, const char* name) {  // what is saved may be for fewer heads
      return exchanged() ? statistics(pass, name, pass.tokens(), d_.value_heads) : s.tensors[saved];
    };
    const at::Tensor decay = of_heads(kDecay, "delta_gdecay"), beta = of_heads(kBeta, "delta_gbeta");
    ops::delta_gates_forward(rows_.gate_inputs(s.tensors[kRows], w.vectors[kLogDecay].value, w.vectors[kTimeBias].value), decay,
                             beta);
    std::vector<ops::ConvolvedSequence> rows;
    std::vector<ops::RecurrentSequence> states;
    for (const NewTokens& sequence : sequences) {
      auto& state = static_cast<RecurrentState&>(*sequence.state);
      QFT_ASSERT(state.rule.tokens == sequence.past, "a recurrent state of {} tokens for a sequence of {}", state.rule.tokens,
                 sequence.past);
      rows.push_back({sequence.count, state.rows});
      states.push_back({sequence.count, &state.rule});
    }
    const at::Tensor convolved = pass.scratch(spec_.scratch[kConvolved]);
    ops::short_convolution_decode(rows_.mixed(s.tensors[kRows]), rows_.filters(w.vectors[kFilters].value), rows, convolved,
                                  pass.workspace);
    ops::gated_delta_decode(rows_.operands(convolved, decay, beta), states, rows_.heads(s.tensors[kValues]), pass.workspace);
    finish(w, pass, s, out);
  }

  void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
                const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const override {
    const Projection &input = w.linears[kInput], &output = w.linears[kOutput];
    const at::Tensor &rows = s.tensors[kRows], &values = s.tensors[kValues];
    const at::Tensor gvalues = pass.scratch(spec_.scratch[kGradValues]), grows = pass.scratch(spec_.scratch[kGradRows]);
    const at::Tensor normed = output.needs_input() ? norm(w, pass, s) : at::Tensor();
    ops::linear_backward({.gy = gout, .x = normed, .saved = s.lora[kOutput], .gx = gvalues}, output.weights, pass.dropout,
                         output.grads, pass.workspace);
    ops::gated_norm_backward({.gy = rows_.heads(gvalues),
                              .x = rows_.heads(values),
                              .z = gates(rows),
                              .weight = w.vectors[kNorm].value,
                              .rstd = s.tensors[kStatistic],
                              .gx = rows_.heads(gvalues),
                              .gz = gates(grows),
                              .gweight = w.vectors[kNorm].grad},
                             pass.workspace);
    if (exchanged()) {
      const at::Tensor gvalues_here = pass.scratch(spec_.scratch[kSequenceValues]),
                       gmixed = pass.scratch(spec_.scratch[kGradSequenceRows]);
      exchange(pass).to_sequences(of_values(gvalues), gvalues_here);
      mix_backward(w, pass, s, gvalues_here, gmixed);
      exchange(pass).to_rows(gmixed, sent(grows));
    } else {
      mix_backward(w, pass, s, gvalues, grows);
    }
    at::Tensor projected = grows;
    if (d_.by_key_head) {
      projected = pass.scratch(spec_.scratch[kProjected]);
      for_parts(grows, projected, [](const at::Tensor& part, const at::Tensor& of_heads) { of_heads.copy_(part); });
    }
    ops::linear_backward({.gy = projected, .x = x, .saved = s.lora[kInput], .gx = gx, .mode = mode}, input.weights, pass.dropout,
                         input.grads, pass.workspace);
  }

  std::unique_ptr<DecodeState> make_state(std::int64_t /*capacity*/, at::ScalarType dtype, c10::Device device) const override {
    auto state = std::make_unique<RecurrentState>();
    state->shape = rows_.shape();
    state->rows = at::zeros({d_.taps - 1, d_.channels()}, at::TensorOptions().dtype(dtype).device(device));
    state->rule = ops::GatedDeltaState::make(state->shape, statistics_dtype(dtype), device);
    return state;
  }

  std::int64_t state_bytes(at::ScalarType dtype) const override {
    return (d_.taps - 1) * d_.channels() * static_cast<std::int64_t>(c10::elementSize(dtype)) +
           ops::GatedDeltaState::bytes(rows_.shape(), statistics_dtype(dtype));
  }

  std::int64_t operation_scratch_bytes(const BatchShape& sizes, at::ScalarType dtype, bool backward,
                                       const KernelChoice& paths) const override {
    const auto item = static_cast<std::int64_t>(c10::elementSize(statistics_dtype(dtype)));
    const ops::DeltaPath path = paths.on_cpu() ? ops::DeltaPath::cpu
                                : paths.plain  ? ops::DeltaPath::plain
                                               : ops::DeltaPath::device;
    // Only one of these operations runs at a time.
    const std::int64_t tokens = std::max(sizes.tokens, sizes.expanded),
                       convolution = paths.on_cpu()
                                         ? 0
                                         : ops::short_convolution_scratch_bytes(tokens, sizes.num_sequences(),
                                                                                mixer_.config().channels(), dtype, backward),
                       gates = paths.on_cpu()
                                   ? 0
                                   : ops::delta_gates_scratch_bytes(sizes.tokens, mixer_.config().value_heads, dtype, backward),
                       norm = ops::gated_norm_scratch_bytes(sizes.tokens, d_.values(), dtype, paths.on_cpu(), backward);
    return (backward ? 2 * sizes.tokens * mixer_.config().value_heads * item : 0) +
           ops::shared_delta_bytes(mixer_.shape(), sizes.expanded, dtype, backward) +
           std::max({convolution, gates, norm, ops::gated_delta_scratch_bytes(mixer_.shape(), sizes, dtype, path, backward)});
  }

  /// The work depends on the sequences' boundaries.
  bool can_be_captured(c10::Device /*device*/, at::ScalarType /*dtype*/) const override { return false; }

 private:
  /// Returns each value head's gate in rows [T, q | k | v | gate | b | a].
  at::Tensor gates(const at::Tensor& rows) const { return rows_.heads(rows.narrow(1, d_.channels(), d_.values())); }

  bool exchanged() const { return spec_.sequences.any(); }
  /// Returns the heads of projected rows that are exchanged, in the order of the rows that the mixer reads.
  std::array<RowsOfHeads, 5> sent(const at::Tensor& rows) const {
    const ops::GatedDeltaTensors t = rows_.split(rows);
    const ops::DeltaGateInputs gate = rows_.gate_inputs(rows, {}, {});
    return {RowsOfHeads{t.q, /*of_keys=*/true}, {t.k, /*of_keys=*/true}, {t.v}, {gate.b.unsqueeze(2)}, {gate.a.unsqueeze(2)}};
  }
  std::array<RowsOfHeads, 1> of_values(const at::Tensor& values) const { return {RowsOfHeads{rows_.heads(values)}}; }
  /// Returns the rows that the mixer reads.
  const at::Tensor& mixed_rows(const SubLayerSaved& s) const { return s.tensors[exchanged() ? kSequenceRows : kRows]; }
  /// Returns the convolved rows of the mixer, in scratch memory.
  at::Tensor convolve(const SubLayerWeights& w, const at::Tensor& rows, const LayerPass& pass) const {
    const at::Tensor convolved = pass.scratch(spec_.scratch[exchanged() ? kSequenceConvolved : kConvolved]);
    ops::short_convolution_forward(mixer_.mixed(rows), mixer_.filters(w.vectors[kFilters].value), *pass.sequences, convolved,
                                   pass.workspace);
    return convolved;
  }

  /// Writes the gradients of the mixer's rows, given those of the rule's output.
  void mix_backward(const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s, const at::Tensor& gvalues,
                    const at::Tensor& grows) const {
    const at::Tensor& rows = mixed_rows(s);
    const at::Tensor convolved = convolve(w, rows, pass),
                     gconvolved = pass.scratch(spec_.scratch[exchanged() ? kGradSequenceConvolved : kGradConvolved]);
    const at::Tensor gdecay = sequence_statistics(pass, "delta_gdecay"), gbeta = sequence_statistics(pass, "delta_gbeta");
    ops::gated_delta_backward(mixer_.heads(gvalues), mixer_.operands(convolved, s.tensors[kDecay], s.tensors[kBeta]),
                              states(s, *pass.sequences), *pass.sequences, mixer_.operands(gconvolved, gdecay, gbeta),
                              pass.workspace);
    const Weight& filter = w.vectors[kFilters];
    const at::Tensor grad = mixer_.filter_gradient(filter.grad);
    ops::short_convolution_backward(gconvolved, mixer_.mixed(rows), mixer_.filters(filter.value), *pass.sequences,
                                    mixer_.mixed(grows), grad, pass.workspace);
    mixer_.add_filter_gradient(grad, filter.grad);
    const Weight &decay = w.vectors[kLogDecay], &bias = w.vectors[kTimeBias];
    ops::delta_gates_backward(gdecay, gbeta, mixer_.gate_inputs(rows, decay.value, bias.value),
                              mixer_.gate_inputs(grows, decay.grad, bias.grad));
  }
  at::Tensor states(const SubLayerSaved& s, const ops::PackedSequences& sequences) const {
    const DeltaNetConfig& d = mixer_.config();
    const std::int64_t kept = ops::kept_delta_states(sequences), size = d.value_heads * d.key_dim * d.value_dim;
    return s.tensors[kStates].view(-1).narrow(0, 0, kept * size).view({kept, d.value_heads, d.key_dim, d.value_dim});
  }
  static at::Tensor statistics(const LayerPass& pass, const char* name, std::int64_t rows, std::int64_t heads) {
    return pass.workspace.get(name, {rows, heads}, statistics_dtype(pass.dtype));
  }
  at::Tensor sequence_statistics(const LayerPass& pass, const char* name) const {
    return statistics(pass, name, exchanged() ? pass.sequences->num_rows() : pass.tokens(), mixer_.config().value_heads);
  }

  /// Calls f(columns of one kind for all key heads, the same columns in projected rows, which are grouped by key head) for each
  /// kind.
  template <class F>
  void for_parts(const at::Tensor& rows, const at::Tensor& projected, const F& f) const {
    const std::int64_t group = d_.value_heads / d_.key_heads, values = group * d_.value_dim;
    std::int64_t to = 0, begin = 0;
    const auto visit_columns = [&](std::initializer_list<std::int64_t> widths) {
      std::int64_t head_width = 0, from = 0;
      for (const std::int64_t width : widths) head_width += width;
      const at::Tensor of_heads = projected.narrow(1, begin, d_.key_heads * head_width).unflatten(1, {d_.key_heads, head_width});
      for (const std::int64_t width : widths) {
        const std::int64_t all = d_.key_heads * width;
        f(rows.narrow(1, to, all).unflatten(1, {d_.key_heads, width}), of_heads.narrow(2, from, width));
        from += width;
        to += all;
      }
      begin += d_.key_heads * head_width;
    };
    visit_columns({d_.key_dim, d_.key_dim, values, values});
    visit_columns({group, group});
  }

  void project(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor& rows = s.tensors[kRows];
    const at::Tensor projected = d_.by_key_head ? pass.scratch(spec_.scratch[kProjected]) : rows;
    ops::linear_forward(x, w.linears[kInput].weights, pass.dropout, projected, s.lora[kInput], pass.workspace);
    if (d_.by_key_head)
      for_parts(rows, projected, [](const at::Tensor& part, const at::Tensor& of_heads) { part.copy_(of_heads); });
  }

  at::Tensor norm(const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor normed = pass.scratch(spec_.scratch[kNormed]);
    ops::gated_norm_forward(rows_.heads(s.tensors[kValues]), gates(s.tensors[kRows]), w.vectors[kNorm].value, eps_,
                            rows_.heads(normed), s.tensors[kStatistic]);
    return normed;
  }

  void finish(const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s, const at::Tensor& out) const {
    ops::linear_forward(norm(w, pass, s), w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  DeltaNetConfig d_;
  DeltaMixer rows_;   ///< all heads, in rows
  DeltaMixer mixer_;  ///< those that mix tokens in training
  double eps_;
};

}  // namespace

std::unique_ptr<const SubLayer> make_delta_net(const ModelConfig& config, const SubLayerSpec& spec) {
  return std::make_unique<DeltaNet>(config, spec);
}

}  // namespace qft::model

// The gated delta net of Qwen3-Next and Qwen3.5: a short convolution over q, k and v, the gated delta rule, then a gated norm.
#include "qft/core/error.h"
#include "qft/ops/delta_gates.h"
#include "qft/ops/gated_delta.h"
#include "qft/ops/norm.h"
#include "qft/ops/short_convolution.h"

#include <algorithm>

#include "kinds.h"
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

// In the order of the description (kind_specs.cpp).
enum Linear : std::size_t { kInput, kOutput };
enum Vector : std::size_t { kFilters, kTimeBias, kLogDecay, kNorm };
enum Saved : std::size_t { kRows, kDecay, kBeta, kValues, kStatistic, kStates };
enum Scratch : std::size_t { kConvolved, kNormed, kGradValues, kGradConvolved, kGradRows, kProjected };

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
        shape_{d_.key_heads, d_.value_heads, d_.key_dim, d_.value_dim},
        eps_(c.rms_norm_eps) {}

  void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& s,
               const at::Tensor& out) const override {
    project(w, x, pass, s);
    const at::Tensor convolved = pass.scratch(spec_.scratch[kConvolved]);
    ops::short_convolution_forward(mixed(s.tensors[kRows]), filters(w.vectors[kFilters].value), *pass.sequences, convolved,
                                   pass.workspace);
    ops::gated_delta_forward(operands(convolved, s), *pass.sequences, heads(s.tensors[kValues]), states(s, *pass.sequences),
                             pass.workspace);
    finish(w, pass, s, out);
  }

  void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
              const SubLayerSaved& s, const at::Tensor& out) const override {
    project(w, x, pass, s);
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
    ops::short_convolution_decode(mixed(s.tensors[kRows]), filters(w.vectors[kFilters].value), rows, convolved, pass.workspace);
    ops::gated_delta_decode(operands(convolved, s), states, heads(s.tensors[kValues]), pass.workspace);
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
    ops::gated_norm_backward({.gy = heads(gvalues),
                              .x = heads(values),
                              .z = gates(rows),
                              .weight = w.vectors[kNorm].value,
                              .rstd = s.tensors[kStatistic],
                              .gx = heads(gvalues),
                              .gz = gates(grows),
                              .gweight = w.vectors[kNorm].grad},
                             pass.workspace);

    const at::Tensor convolved = pass.scratch(spec_.scratch[kConvolved]),
                     gconvolved = pass.scratch(spec_.scratch[kGradConvolved]);
    const Weight& filter = w.vectors[kFilters];
    ops::short_convolution_forward(mixed(rows), filters(filter.value), *pass.sequences, convolved, pass.workspace);
    const at::Tensor gdecay = statistics(pass, "delta_gdecay"), gbeta = statistics(pass, "delta_gbeta");
    ops::GatedDeltaTensors grads = split(gconvolved);
    grads.g = gdecay;
    grads.beta = gbeta;
    ops::gated_delta_backward(heads(gvalues), operands(convolved, s), states(s, *pass.sequences), *pass.sequences, grads,
                              pass.workspace);
    ops::short_convolution_backward(gconvolved, mixed(rows), filters(filter.value), *pass.sequences, mixed(grows),
                                    filters(filter.grad), pass.workspace);
    ops::DeltaGateInputs gate_grads = gate_inputs(grows, {}, {});
    gate_grads.a_log = w.vectors[kLogDecay].grad;
    gate_grads.dt_bias = w.vectors[kTimeBias].grad;
    ops::delta_gates_backward(gdecay, gbeta, gate_inputs(rows, w.vectors[kLogDecay].value, w.vectors[kTimeBias].value),
                              gate_grads);

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
    state->shape = shape_;
    state->rows = at::zeros({d_.taps - 1, d_.channels()}, at::TensorOptions().dtype(dtype).device(device));
    state->rule = ops::GatedDeltaState::make(shape_, statistics_dtype(dtype), device);
    return state;
  }

  std::int64_t state_bytes(at::ScalarType dtype) const override {
    return (d_.taps - 1) * d_.channels() * static_cast<std::int64_t>(c10::elementSize(dtype)) +
           ops::GatedDeltaState::bytes(shape_, statistics_dtype(dtype));
  }

  std::int64_t operation_scratch_bytes(const BatchShape& sizes, at::ScalarType dtype, bool backward,
                                       const KernelChoice& paths) const override {
    const auto item = static_cast<std::int64_t>(c10::elementSize(statistics_dtype(dtype)));
    const ops::DeltaPath path = paths.on_cpu() ? ops::DeltaPath::cpu
                                : paths.plain  ? ops::DeltaPath::plain
                                               : ops::DeltaPath::device;
    // Only one of these operations runs at a time.
    const std::int64_t tokens = std::max(sizes.tokens, sizes.expanded),
                       convolution = paths.on_cpu() ? 0
                                                    : ops::short_convolution_scratch_bytes(tokens, sizes.num_sequences(),
                                                                                           d_.channels(), dtype, backward),
                       gates = paths.on_cpu() ? 0 : ops::delta_gates_scratch_bytes(sizes.tokens, d_.value_heads, dtype, backward),
                       norm = ops::gated_norm_scratch_bytes(sizes.tokens, d_.values(), dtype, paths.on_cpu(), backward);
    return (backward ? 2 * sizes.tokens * d_.value_heads * item : 0) +
           ops::shared_delta_bytes(shape_, sizes.expanded, dtype, backward) +
           std::max({convolution, gates, norm, ops::gated_delta_scratch_bytes(shape_, sizes, dtype, path, backward)});
  }

  /// The work depends on the sequences' boundaries.
  bool can_be_captured(c10::Device /*device*/, at::ScalarType /*dtype*/) const override { return false; }

 private:
  /// Parts of rows [T, q | k | v | gate | b | a]: the convolution's input, and each value head's gate.
  at::Tensor mixed(const at::Tensor& rows) const { return rows.narrow(1, 0, d_.channels()); }
  at::Tensor gates(const at::Tensor& rows) const { return heads(rows.narrow(1, d_.channels(), d_.values())); }
  at::Tensor heads(const at::Tensor& values) const { return values.unflatten(1, {d_.value_heads, d_.value_dim}); }
  ops::DeltaGateInputs gate_inputs(const at::Tensor& rows, const at::Tensor& a_log, const at::Tensor& dt_bias) const {
    const std::int64_t b = d_.channels() + d_.values();
    return {rows.narrow(1, b + d_.value_heads, d_.value_heads), rows.narrow(1, b, d_.value_heads), a_log, dt_bias};
  }
  /// Returns the filters, or their gradient, in the convolution's shape.
  at::Tensor filters(const at::Tensor& weight) const {
    return weight.defined() ? weight.view({d_.channels(), d_.taps}) : at::Tensor();
  }

  ops::GatedDeltaTensors split(const at::Tensor& convolved) const {
    const std::int64_t keys = d_.key_heads * d_.key_dim;
    const auto key_heads = [&](std::int64_t first) {
      return convolved.narrow(1, first, keys).unflatten(1, {d_.key_heads, d_.key_dim});
    };
    return {key_heads(0), key_heads(keys), heads(convolved.narrow(1, 2 * keys, d_.values())), {}, {}};
  }
  ops::GatedDeltaTensors operands(const at::Tensor& convolved, const SubLayerSaved& s) const {
    ops::GatedDeltaTensors t = split(convolved);
    t.g = s.tensors[kDecay];
    t.beta = s.tensors[kBeta];
    return t;
  }
  at::Tensor states(const SubLayerSaved& s, const ops::PackedSequences& sequences) const {
    const std::int64_t kept = ops::kept_delta_states(sequences), size = d_.value_heads * d_.key_dim * d_.value_dim;
    return s.tensors[kStates].view(-1).narrow(0, 0, kept * size).view({kept, d_.value_heads, d_.key_dim, d_.value_dim});
  }
  at::Tensor statistics(const LayerPass& pass, const char* name) const {
    return pass.workspace.get(name, {pass.tokens(), d_.value_heads}, statistics_dtype(pass.dtype));
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
    ops::delta_gates_forward(gate_inputs(rows, w.vectors[kLogDecay].value, w.vectors[kTimeBias].value), s.tensors[kDecay],
                             s.tensors[kBeta]);
  }

  at::Tensor norm(const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s) const {
    const at::Tensor normed = pass.scratch(spec_.scratch[kNormed]);
    ops::gated_norm_forward(heads(s.tensors[kValues]), gates(s.tensors[kRows]), w.vectors[kNorm].value, eps_, heads(normed),
                            s.tensors[kStatistic]);
    return normed;
  }

  void finish(const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s, const at::Tensor& out) const {
    ops::linear_forward(norm(w, pass, s), w.linears[kOutput].weights, pass.dropout, out, s.lora[kOutput], pass.workspace);
  }

  DeltaNetConfig d_;
  ops::DeltaShape shape_;
  double eps_;
};

}  // namespace

std::unique_ptr<const SubLayer> make_delta_net(const ModelConfig& config, const SubLayerSpec& spec) {
  return std::make_unique<DeltaNet>(config, spec);
}

}  // namespace qft::model

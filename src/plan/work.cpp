#include "qft/plan/work.h"

#include "qft/core/error.h"

namespace qft::plan {
namespace {

using model::ModelSpec;
using model::UnitSpec;

double to_double(std::int64_t n) { return static_cast<double>(n); }

/// Sums over the linear modules of a layer.
struct Modules {
  double weights = 0;         ///< elements
  double lora = 0;            ///< rank x (inputs + outputs) of those with LoRA
  double lora_inputs = 0;     ///< inputs of those with LoRA
  double qkv_weights = 0;

  explicit Modules(const ModelSpec& spec) {
    for (std::size_t i = 0; i < model::kModules; ++i) {
      const auto module = static_cast<model::Module>(i);
      const auto [out, in] = model::module_shape(spec.config, module);
      weights += to_double(out * in);
      if (module == model::Module::q_proj || module == model::Module::k_proj || module == model::Module::v_proj)
        qkv_weights += to_double(out * in);
      if (!spec.lora.enabled() || !spec.lora.targets_module(module)) continue;
      lora += to_double(spec.lora.rank * (out + in));
      lora_inputs += to_double(in);
    }
  }
};

bool trains(const ModelSpec& spec, int block, model::TensorKind kind) {
  for (const int unit : spec.units_of_block(block))
    for (const auto& p : spec.units[static_cast<std::size_t>(unit)].params)
      if (p.kind == kind && p.trainable) return true;
  return false;
}

bool is_layer(const ModelSpec& spec, int block) {
  return spec.units[static_cast<std::size_t>(block)].kind == UnitSpec::Kind::layer;
}

/// Two norms, rotary embedding, SwiGLU and two residual sums; with q/k norm one more pass over q and k.
Work layer_forward(const ModelSpec& spec, const MicroShape& micro, double item) {
  const auto& c = spec.config;
  const Modules modules(spec);
  const double tokens = to_double(micro.tokens), heads = to_double(c.q_size() + c.kv_size());
  Work w;
  w.matmul = 2 * tokens * modules.weights;
  w.narrow = 2 * tokens * modules.lora;
  w.attention = 4 * micro.pairs * to_double(c.q_size());  // q k^T and p v
  double values = 10 * to_double(c.hidden_size) + (c.qk_norm ? 4 : 2) * heads + 3 * to_double(c.intermediate_size);
  if (spec.lora.dropout > 0.0) values += 2 * modules.lora_inputs;
  w.bytes = tokens * values * item;
  return w;
}

Work layer_backward(const ModelSpec& spec, int block, const MicroShape& micro, double item, bool input_grad) {
  const auto& c = spec.config;
  const Modules modules(spec);
  const double tokens = to_double(micro.tokens), hidden = to_double(c.hidden_size), heads = to_double(c.q_size() + c.kv_size());
  Work w;
  w.matmul = 2 * tokens * (modules.weights - (input_grad ? 0.0 : modules.qkv_weights));
  if (trains(spec, block, model::TensorKind::q_weight)) w.matmul += 2 * tokens * modules.weights;
  w.narrow = 4 * tokens * modules.lora;  // of the inputs and of the two factors
  w.attention = 10 * micro.pairs * to_double(c.q_size());
  // The norms and SwiGLU again, then their gradients with the residual's.
  double values = (4 + 8) * hidden + (3 + 5) * to_double(c.intermediate_size) + (c.qk_norm ? 5 : 2) * heads;
  if (spec.lora.dropout > 0.0) values += 5 * modules.lora_inputs;
  w.bytes = tokens * values * item;
  return w;
}

}  // namespace

void MicroShape::add_sequence(std::int64_t length, std::int64_t sequence_labels) {
  tokens += length;
  labels += sequence_labels;
  ++sequences;
  pairs += 0.5 * to_double(length) * to_double(length + 1);
}

Work& Work::operator+=(const Work& o) {
  matmul += o.matmul;
  narrow += o.narrow;
  attention += o.attention;
  bytes += o.bytes;
  return *this;
}

double seconds(const Work& work, const Machine& m, at::ScalarType type) {
  const double large = m.matmul_flops(type);
  const double peak = large / m.matmul_efficiency;
  const auto at_rate = [&](double amount, double efficiency, const char* key) {
    if (amount == 0.0) return 0.0;
    if (efficiency == 0.0) fail_config("machine '{}': {} is missing, but the run needs it (qft bench machine measures it)", m.name, key);
    return amount / (peak * efficiency);
  };
  return work.matmul / large + at_rate(work.narrow, m.narrow_efficiency, "narrow_efficiency") +
         at_rate(work.attention, m.attention_efficiency, "attention_efficiency") + work.bytes / (m.memory_gb_s * 1e9);
}

Work forward_work(const ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type) {
  const double item = to_double(static_cast<std::int64_t>(c10::elementSize(type)));
  if (is_layer(spec, block)) return layer_forward(spec, micro, item);
  const double tokens = to_double(micro.tokens), labels = to_double(micro.labels), hidden = to_double(spec.config.hidden_size);
  Work w;
  if (block != spec.head_unit()) {
    w.bytes = 2 * tokens * hidden * item;
    return w;
  }
  const double vocabulary = to_double(spec.config.vocab_size);
  const bool table = trains(spec, block, model::TensorKind::lm_head) || trains(spec, block, model::TensorKind::embed_tokens);
  w.matmul = (table ? 6 : 4) * labels * hidden * vocabulary;              // logits, gradient of their input, of the table
  w.bytes = (3 * labels * vocabulary + 7 * tokens * hidden) * item;       // softmax and its gradient; norm and its gradient
  return w;
}

Work backward_work(const ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type, bool recompute, bool input_grad) {
  const double item = to_double(static_cast<std::int64_t>(c10::elementSize(type)));
  if (is_layer(spec, block)) {
    Work w = layer_backward(spec, block, micro, item, input_grad);
    if (recompute) w += layer_forward(spec, micro, item);
    return w;
  }
  Work w;
  if (block != spec.head_unit()) w.bytes = to_double(micro.tokens * spec.config.hidden_size) * (item + 8);  // added to fp32 rows
  return w;
}

}  // namespace qft::plan

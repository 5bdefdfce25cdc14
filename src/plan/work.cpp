#include "qft/plan/work.h"

#include "qft/core/error.h"

#include <algorithm>
#include <string_view>

namespace qft::plan {
namespace {

using model::ModelSpec;
using model::UnitSpec;

double to_double(std::int64_t n) {
  return static_cast<double>(n);
}

/// Sums over the linear modules of a sub-layer.
struct Linears {
  double weights = 0;       ///< weight elements that multiply a token
  double entries = 0;       ///< elements of the linears that read the norm's output
  double lora = 0;          ///< rank x (inputs + outputs) of linears with LoRA
  double lora_inputs = 0;   ///< inputs of linears with LoRA
  double oft = 0;           ///< operations per token that rotate inputs
  double oft_inputs = 0;    ///< rotated inputs
  double dora = 0;          ///< outputs of linears with DoRA
  double dora_weights = 0;  ///< weight elements of linears with DoRA

  explicit Linears(const model::SubLayerSpec& sublayer) {
    int index = 0;
    for (const model::ParamGroup* group : sublayer.linears()) {
      const std::int64_t rows = group->stack.per_token;
      weights += to_double(rows * group->out() * group->in());
      if (index++ < sublayer.input_groups) entries += to_double(rows * group->out() * group->in());
      for (const model::OftRows& part : group->oft) {
        oft += to_double(group->in() * part.block);
        oft_inputs += to_double(group->in());
      }
      for (const model::LoraRows& part : group->lora) {
        lora += to_double(rows * part.rank * (part.rows + group->in()));
        lora_inputs += to_double(rows * group->in());
        if (!part.dora) continue;
        dora += to_double(part.rows);
        dora_weights += to_double(part.rows * group->in());
      }
    }
  }
};

bool trains_weights(const ModelSpec& spec, int block, std::string_view path = {}) {
  for (const int unit : spec.units_of_block(block))
    for (const auto& p : spec.units[static_cast<std::size_t>(unit)].params)
      if (p.trainable && p.role == model::Role::base && (path.empty() || p.path == path)) return true;
  return false;
}

const model::Layer* layer_of(const ModelSpec& spec, int block) {
  const UnitSpec& unit = spec.units[static_cast<std::size_t>(block)];
  return unit.kind == UnitSpec::Kind::layer ? &spec.layers[static_cast<std::size_t>(unit.layer)] : nullptr;
}

/// Rows that a rank computes in a sub-layer: with whole matrices its own, with its part of them all.
double rows_here(const ModelSpec& spec, const model::SubLayerSpec& sublayer, const MicroShape& micro) {
  return to_double(sublayer.on_own_rows ? spec.share.room(micro.tokens) : micro.tokens);
}

Work layer_forward(const ModelSpec& spec, const model::Layer& layer, const MicroShape& micro, double item) {
  const bool dropout = spec.adapter.lora.dropout > 0.0;
  Work w;
  for (const model::SubLayerSpec& sublayer : layer) {
    const double tokens = rows_here(spec, sublayer, micro);
    const model::SubLayerCost& cost = sublayer.forward;
    const Linears linears(sublayer);
    w.matmul += 2 * tokens * linears.weights;
    w.narrow += 2 * tokens * (linears.lora + linears.oft);
    w.attention += micro.pairs(sublayer.window) * cost.pair_operations;
    w.bytes +=
        tokens *
        (cost.values + 3 * linears.dora + 5 * linears.oft_inputs + (dropout ? 2 * linears.lora_inputs + 6 * linears.dora : 0.0)) *
        item;
    if (dropout) w.matmul += 2 * tokens * linears.dora_weights;
  }
  return w;
}

Work layer_backward(const ModelSpec& spec, const model::Layer& layer, int block, const MicroShape& micro, double item,
                    bool input_grad) {
  const double products = trains_weights(spec, block) ? 2 : 1;
  const bool dropout = spec.adapter.lora.dropout > 0.0;
  Work w;
  for (const model::SubLayerSpec& sublayer : layer) {
    const double tokens = rows_here(spec, sublayer, micro);
    const model::SubLayerCost& cost = sublayer.backward;
    const Linears linears(sublayer);
    const double unneeded = &sublayer == &layer.front() && !input_grad ? linears.entries : 0.0;
    w.matmul += 2 * tokens * (products * linears.weights - unneeded);
    w.narrow += 4 * tokens * (linears.lora + linears.oft);  // gradients of the inputs, and of the two factors or the rotation
    w.attention += micro.pairs(sublayer.window) * cost.pair_operations;
    w.bytes +=
        tokens *
        (cost.values + 3 * linears.dora + 7 * linears.oft_inputs + (dropout ? 5 * linears.lora_inputs + 3 * linears.dora : 0.0)) *
        item;
    if (dropout) w.matmul += 2 * tokens * linears.dora_weights;
  }
  return w;
}

}  // namespace

void MicroShape::add_sequence(std::int64_t length, std::int64_t sequence_labels) {
  tokens += length;
  if (expanded > 0) expanded += length;
  labels += sequence_labels;
  ++sequences;
  lengths_.push_back(length);
  longest = std::max(longest, length);
  padded = std::max(padded, sequences * longest);
  all_pairs_ += model::visible_pairs(length, 0);
}

void MicroShape::share(std::int64_t rows) {
  if (expanded == 0) expanded = tokens;
  tokens -= rows;
}

double MicroShape::pairs(std::int64_t window) const {
  if (window == 0 || window >= longest) return all_pairs_;
  double sum = 0;
  for (const std::int64_t length : lengths_) sum += model::visible_pairs(length, window);
  return sum;
}

MicroShape MicroShape::half() const {
  MicroShape half;
  for (std::size_t s = 0; s < lengths_.size(); s += 2) half.add_sequence(lengths_[s], 0);
  half.labels = labels / 2;
  return half;
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
    if (efficiency == 0.0)
      fail_config("machine '{}': {} is missing, but the run needs it (qft bench machine measures it)", m.name, key);
    return amount / (peak * efficiency);
  };
  return work.matmul / large + at_rate(work.narrow, m.narrow_efficiency, "narrow_efficiency") +
         at_rate(work.attention, m.attention_efficiency, "attention_efficiency") + work.bytes / (m.memory_gb_s * 1e9);
}

Work forward_work(const ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type,
                  parallel::ObjectiveKind objective) {
  const double item = to_double(static_cast<std::int64_t>(c10::elementSize(type)));
  if (const model::Layer* layer = layer_of(spec, block)) return layer_forward(spec, *layer, micro, item);
  const double labels = to_double(micro.labels), hidden = to_double(spec.config.hidden_size);
  Work w;
  if (block != spec.head_unit()) {
    w.bytes = 2 * to_double(micro.tokens) * hidden * item;
    return w;
  }
  if (spec.head.of_sequences()) return w;  // only a few rows
  const double vocabulary = to_double(spec.vocabulary.count), tokens = to_double(spec.share.room(micro.tokens));
  if (objective == parallel::ObjectiveKind::sequence_level) {
    w.matmul = 2 * labels * hidden * vocabulary;
    w.bytes = (labels * vocabulary + 3 * tokens * hidden) * item;
    return w;
  }
  const bool table = trains_weights(spec, block, model::kLmHead) || trains_weights(spec, block, model::kEmbedTokens);
  w.matmul = (table ? 6 : 4) * labels * hidden * vocabulary;         // logits, gradient of their input, gradient of the table
  w.bytes = (3 * labels * vocabulary + 7 * tokens * hidden) * item;  // softmax and its gradient; norm and its gradient
  return w;
}

Work backward_work(const ModelSpec& spec, int block, const MicroShape& micro, at::ScalarType type, bool recompute,
                   bool input_grad, parallel::ObjectiveKind objective) {
  const double item = to_double(static_cast<std::int64_t>(c10::elementSize(type)));
  if (const model::Layer* layer = layer_of(spec, block)) {
    Work w = layer_backward(spec, *layer, block, micro, item, input_grad);
    if (recompute) w += layer_forward(spec, *layer, micro, item);
    return w;
  }
  if (block == spec.head_unit())
    return objective == parallel::ObjectiveKind::sequence_level ? forward_work(spec, block, micro, type) : Work{};
  Work w;
  w.bytes = to_double(micro.tokens * spec.config.hidden_size) * (item + 8);  // added to fp32 rows
  return w;
}

}  // namespace qft::plan

#include "qft/ops/delta_chunks.h"

#include "descriptions.h"
#include "parallelize.h"

namespace qft::model {
namespace {

/// Values of a row that norm and residual sum read and write, divided by the tensor ranks, which share these rows.
double values_of_row(const ModelConfig& c, const LayerSplit& split) {
  return static_cast<double>(c.hidden_size) / split.share.ranks;
}

/// Changes attention's tensors for context ranks: q and k of own rows are kept until they are sent; attention runs on whole
/// sequences of some heads.
void exchange_attention(SubLayerSpec& spec, const ModelConfig& c) {
  const SequenceHeads& mine = spec.sequences.mine();
  const std::int64_t d = c.head_dim, heads = spec.heads.heads.count * d, keys = spec.heads.key_heads.count * d;
  const std::int64_t attended_columns = mine.columns(d, false), qkv_columns = attended_columns + 2 * mine.columns(d, true);
  spec.saved[2] = {.columns = mine.heads.count, .type = SavedType::statistic, .transposed = true, .of_sequences = true};
  if (c.qk_norm != QkNorm::none) spec.saved[3].columns = 0;  // not needed after the exchange
  spec.saved.push_back({.columns = qkv_columns, .of_sequences = true});
  spec.saved.push_back({.columns = attended_columns, .of_sequences = true});
  if (!c.attention_gate) {
    spec.scratch.push_back({"gated", 0});
    spec.scratch.push_back({"gqk", 0, /*backward_only=*/true});
  }
  spec.scratch.push_back({"sent_qk", c.qk_norm != QkNorm::none ? heads + keys : 0});
  spec.scratch.push_back({"sequence_gattention", attended_columns, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({"sequence_gqkv", qkv_columns, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({kExchangedHeads, spec.sequences.columns_of_all(d, 2 * d)});
  spec.exchanged_columns = spec.sequences.columns_of_all(2 * d, 2 * d);
}

/// The same for a delta net: convolution, gates and rule run on whole sequences of some heads.
void exchange_delta_net(SubLayerSpec& spec, const DeltaNetConfig& d) {
  DeltaNetConfig here = d;
  here.key_heads = spec.sequences.mine().num_key_heads();
  here.value_heads = spec.sequences.mine().heads.count;
  const std::int64_t values = here.values(), channels = here.channels(), sent = channels + 2 * here.value_heads,
                     state = here.value_heads * d.key_dim * d.value_dim;
  for (const std::size_t gate : {1, 2})
    spec.saved[gate] = {.columns = here.value_heads, .type = SavedType::statistic, .of_sequences = true};
  spec.saved[5] = {
      .columns = (state + ops::kDeltaSegment - 1) / ops::kDeltaSegment, .type = SavedType::statistic, .of_sequences = true};
  spec.saved.push_back({.columns = sent, .of_sequences = true});
  if (!d.by_key_head) spec.scratch.push_back({"delta_projected", 0});
  spec.scratch.push_back({"delta_sequence_convolved", channels, /*backward_only=*/false, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_sequence_values", values, /*backward_only=*/false, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_sequence_gconvolved", channels, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_sequence_grows", sent, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({kExchangedHeads, spec.sequences.columns_of_all(d.value_dim + 2, 2 * d.key_dim)});
  spec.exchanged_columns = spec.sequences.columns_of_all(2 * d.value_dim + 2, 2 * d.key_dim);
}

}  // namespace

SubLayerSpec describe_attention(const ModelConfig& c, std::int64_t window, const LayerSplit& split) {
  const Heads heads = attention_heads(c, split);
  const Cut asked = heads.cut(split.share, q_proj_dim(c)), of_q = heads.cut(split.share, c.head_dim),
            of_kv = heads.key_cut(split.share, c.head_dim);
  const std::int64_t q = of_q.count(), kv = of_kv.count(), qkv = asked.count() + 2 * kv;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::attention;
  spec.window = window;
  spec.heads = heads.split(split.share);
  const std::int64_t num_heads = spec.heads.heads.count, num_kv_heads = spec.heads.key_heads.count;
  spec.params = attention_params(c, heads, split.share);
  const bool qk_norm = c.qk_norm != QkNorm::none, by_head = c.qk_norm == QkNorm::heads;
  spec.saved = {{.columns = qkv}, {.columns = q}, {.columns = num_heads, .type = SavedType::statistic, .transposed = true}};
  if (qk_norm) {
    spec.saved.push_back({.columns = q + kv});
    spec.saved.push_back({.columns = by_head ? num_heads : 1, .type = SavedType::statistic});
    spec.saved.push_back({.columns = by_head ? num_kv_heads : 1, .type = SavedType::statistic});
  }
  spec.scratch = {{"gattention", q, /*backward_only=*/true}, {"gqkv", qkv, /*backward_only=*/true}};
  if (c.attention_gate) {
    spec.scratch.push_back({"gated", q});
    spec.scratch.push_back({"gqk", q + kv, /*backward_only=*/true});
  }
  spec.sequences = SequenceShare::split(num_heads, num_kv_heads, split.context);
  if (spec.sequences.any()) exchange_attention(spec, c);
  const double h = values_of_row(c, split);
  const auto rotated = static_cast<double>(q + kv), q_size = static_cast<double>(q);
  spec.forward = {.values = 5 * h + (qk_norm ? 4 : 2) * rotated, .pair_operations = 4 * q_size};  // q k^T and p v
  spec.backward = {.values = 6 * h + (qk_norm ? 5 : 2) * rotated, .pair_operations = 10 * q_size};
  if (c.attention_gate) {
    spec.forward.values += 3 * q_size;
    spec.backward.values += 8 * q_size;
  }
  return spec;
}

SubLayerSpec describe_delta_net(const ModelConfig& c, const LayerSplit& split) {
  const Heads heads = delta_heads(c, split);
  const HeadShare mine = heads.split(split.share);
  DeltaNetConfig d = c.delta_net;
  d.key_heads = mine.key_heads.count;
  d.value_heads = mine.heads.count;
  const std::int64_t channels = d.channels(), values = d.values(), columns = d.columns();
  const std::int64_t state = d.value_heads * d.key_dim * d.value_dim;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::delta_net;
  spec.heads = mine;
  spec.params = delta_net_params(c, heads, split.share);
  spec.saved = {{.columns = columns},
                {.columns = d.value_heads, .type = SavedType::statistic},  // g
                {.columns = d.value_heads, .type = SavedType::statistic},  // beta
                {.columns = values},                                       // the rule's output
                {.columns = d.value_heads, .type = SavedType::statistic},  // statistic of its norm
                // Upper bound for the states that the rule saves: one per segment of tokens, spread over its tokens.
                {.columns = (state + ops::kDeltaSegment - 1) / ops::kDeltaSegment, .type = SavedType::statistic}};
  spec.scratch = {{"delta_convolved", channels},
                  {"delta_normed", values},
                  {"delta_gvalues", values, /*backward_only=*/true},
                  {"delta_gconvolved", channels, /*backward_only=*/true},
                  {"delta_grows", columns, /*backward_only=*/true}};
  if (d.by_key_head) spec.scratch.push_back({"delta_projected", columns});
  spec.sequences = SequenceShare::split(d.value_heads, d.key_heads, split.context);
  if (spec.sequences.any()) exchange_delta_net(spec, d);
  const double h = values_of_row(c, split);
  const auto all = static_cast<double>(columns), v = static_cast<double>(values);
  // For each chunk, the rule reads and writes a state, and the chunk's products with the state and with itself.
  const auto rule = static_cast<double>(2 * state / ops::kDeltaChunk + channels);
  spec.forward.values = 5 * h + 3 * all + 4 * v + rule;
  spec.backward.values = 6 * h + 8 * all + 8 * v + 3 * rule;
  return spec;
}

SubLayerSpec describe_experts(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  const std::int64_t hidden = c.hidden_size, inner = e.intermediate_size, shared = e.shared_size, k = e.per_token;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::experts;
  spec.on_own_rows = true;
  spec.params = experts_params(c);
  spec.saved = {{.columns = e.count, .type = SavedType::statistic},  // the router's probabilities
                {.columns = 1, .type = SavedType::statistic},        // log of the sum by which they are divided
                {.columns = k, .type = SavedType::index},            // a token's experts
                {.columns = k},                                      // and the experts' weights
                {.columns = k * 2 * inner}};                         // each expert's gate and up
  spec.scratch = {{"experts_x", k * hidden},
                  {"experts_act", k * inner},
                  {"experts_y", k * hidden},
                  {"experts_gact", k * inner, /*backward_only=*/true}};
  spec.input_groups = 2;
  const auto h = static_cast<double>(hidden), rows = static_cast<double>(k), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * static_cast<double>(e.count) + rows * (3 * h + 5 * i);  // copied to experts' rows and back
  spec.backward.values = 6 * h + 6 * static_cast<double>(e.count) + rows * (7 * h + 12 * i);
  if (shared == 0) return spec;
  spec.input_groups = 4;
  spec.saved.push_back({.columns = 2 * shared});
  spec.saved.push_back({.columns = 1});  // the shared expert's gate
  spec.scratch.push_back({"shared_act", shared});
  spec.scratch.push_back({"shared_gact", shared, /*backward_only=*/true});
  spec.scratch.push_back({"shared_y", hidden});
  const auto s = static_cast<double>(shared);
  spec.forward.values += 3 * h + 5 * s;
  spec.backward.values += 3 * h + 12 * s;
  return spec;
}

SubLayerSpec describe_swiglu(const ModelConfig& c, const LayerSplit& split) {
  const Cut columns = InnerColumns(c, split).cut(split.share);
  const std::int64_t inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::swiglu;
  spec.params = swiglu_params(c, columns);
  spec.saved = {{.columns = 2 * inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const double h = values_of_row(c, split);
  const auto i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 3 * i;         // norm and residual sum; gate, up and their product
  spec.backward.values = 6 * h + (3 + 5) * i;  // norm and product recomputed; their gradients, including the residual's
  return spec;
}

SubLayerSpec describe_squared_relu(const ModelConfig& c, const LayerSplit& split) {
  const Cut columns = InnerColumns(c, split).cut(split.share);
  const std::int64_t inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::squared_relu;
  spec.params = squared_relu_params(c, columns);
  spec.saved = {{.columns = inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const double h = values_of_row(c, split);
  const auto i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * i;         // norm and residual sum; ReLU and square in place
  spec.backward.values = 6 * h + (4 + 7) * i;  // norm and square recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model

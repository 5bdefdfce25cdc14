#include "qft/ops/delta_chunks.h"

#include "descriptions.h"
#include "parallelize.h"

namespace qft::model {
namespace {

/// Values of a row that the norm and the residual sum pass, per row of the micro-batch: tensor ranks divide these rows.
double values_of_row(const ModelConfig& c, const Dealing& dealing) {
  return static_cast<double>(c.hidden_size) / dealing.share.ranks;
}

/// Attention's tensors if context ranks share its sequences: of each row, q and k until they are sent; of each sequence, the
/// heads here.
void exchange_attention(SubLayerSpec& spec, const ModelConfig& c) {
  const SequenceHeads& mine = spec.sequences.mine();
  const std::int64_t d = c.head_dim, heads = spec.heads.heads.count * d, keys = spec.heads.key_heads.count * d;
  const std::int64_t seen = mine.columns(d, false), seen_qkv = seen + 2 * mine.columns(d, true);
  spec.saved[2] = {.columns = mine.heads.count, .type = SavedType::statistic, .transposed = true, .of_sequences = true};
  if (c.qk_norm != QkNorm::none) spec.saved[3].columns = 0;  // not needed after the exchange
  spec.saved.push_back({.columns = seen_qkv, .of_sequences = true});
  spec.saved.push_back({.columns = seen, .of_sequences = true});
  if (!c.attention_gate) {
    spec.scratch.push_back({"gated", 0});
    spec.scratch.push_back({"gqk", 0, /*backward_only=*/true});
  }
  spec.scratch.push_back({"sent_qk", c.qk_norm != QkNorm::none ? heads + keys : 0});
  spec.scratch.push_back({"whole_gattention", seen, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({"whole_gqkv", seen_qkv, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({kExchangedHeads, spec.sequences.columns_of_all(d, 2 * d)});
  spec.exchanged_columns = spec.sequences.columns_of_all(2 * d, 2 * d);
}

/// Likewise for a delta net: the convolution's input and output and the rule's for the heads here.
void exchange_delta_net(SubLayerSpec& spec, const DeltaNetConfig& d) {
  DeltaNetConfig seen = d;
  seen.key_heads = spec.sequences.mine().num_key_heads();
  seen.value_heads = spec.sequences.mine().heads.count;
  const std::int64_t values = seen.values(), channels = seen.channels(), sent = channels + 2 * seen.value_heads,
                     state = seen.value_heads * d.key_dim * d.value_dim;
  for (const std::size_t gate : {1, 2})
    spec.saved[gate] = {.columns = seen.value_heads, .type = SavedType::statistic, .of_sequences = true};
  spec.saved[5] = {
      .columns = (state + ops::kDeltaSegment - 1) / ops::kDeltaSegment, .type = SavedType::statistic, .of_sequences = true};
  spec.saved.push_back({.columns = sent, .of_sequences = true});
  if (!d.by_key_head) spec.scratch.push_back({"delta_projected", 0});
  spec.scratch.push_back({"delta_whole_convolved", channels, /*backward_only=*/false, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_whole_values", values, /*backward_only=*/false, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_whole_gconvolved", channels, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({"delta_whole_grows", sent, /*backward_only=*/true, /*of_sequences=*/true});
  spec.scratch.push_back({kExchangedHeads, spec.sequences.columns_of_all(d.value_dim + 2, 2 * d.key_dim)});
  spec.exchanged_columns = spec.sequences.columns_of_all(2 * d.value_dim + 2, 2 * d.key_dim);
}

}  // namespace

SubLayerSpec describe_attention(const ModelConfig& c, std::int64_t window, const Dealing& dealing) {
  const Heads heads = attention_heads(c, dealing);
  const Cut asked = heads.cut(dealing.share, asked_dim(c)), of_q = heads.cut(dealing.share, c.head_dim),
            of_kv = heads.key_cut(dealing.share, c.head_dim);
  const std::int64_t q = of_q.count(), kv = of_kv.count(), qkv = asked.count() + 2 * kv;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::attention;
  spec.window = window;
  spec.heads = heads.deal(dealing.share);
  const std::int64_t num_heads = spec.heads.heads.count, num_kv_heads = spec.heads.key_heads.count;
  spec.params = attention_params(c, heads, dealing.share);
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
  spec.sequences = SequenceShare::deal(num_heads, num_kv_heads, dealing.context);
  if (spec.sequences.any()) exchange_attention(spec, c);
  const double h = values_of_row(c, dealing);
  const auto rotated = static_cast<double>(q + kv), q_size = static_cast<double>(q);
  spec.forward = {.values = 5 * h + (qk_norm ? 4 : 2) * rotated, .pair_operations = 4 * q_size};  // q k^T and p v
  spec.backward = {.values = 6 * h + (qk_norm ? 5 : 2) * rotated, .pair_operations = 10 * q_size};
  if (c.attention_gate) {
    spec.forward.values += 3 * q_size;
    spec.backward.values += 8 * q_size;
  }
  return spec;
}

SubLayerSpec describe_delta_net(const ModelConfig& c, const Dealing& dealing) {
  const Heads heads = delta_heads(c, dealing);
  const HeadShare mine = heads.deal(dealing.share);
  DeltaNetConfig d = c.delta_net;
  d.key_heads = mine.key_heads.count;
  d.value_heads = mine.heads.count;
  const std::int64_t channels = d.channels(), values = d.values(), columns = d.columns();
  const std::int64_t state = d.value_heads * d.key_dim * d.value_dim;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::delta_net;
  spec.heads = mine;
  spec.params = delta_net_params(c, heads, dealing.share);
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
  spec.sequences = SequenceShare::deal(d.value_heads, d.key_heads, dealing.context);
  if (spec.sequences.any()) exchange_delta_net(spec, d);
  const double h = values_of_row(c, dealing);
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

SubLayerSpec describe_swiglu(const ModelConfig& c, const Dealing& dealing) {
  const Cut columns = InnerColumns(c, dealing).cut(dealing.share);
  const std::int64_t inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::swiglu;
  spec.params = swiglu_params(c, columns);
  spec.saved = {{.columns = 2 * inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const double h = values_of_row(c, dealing);
  const auto i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 3 * i;         // norm and residual sum; gate, up and their product
  spec.backward.values = 6 * h + (3 + 5) * i;  // norm and product recomputed; their gradients, including the residual's
  return spec;
}

SubLayerSpec describe_squared_relu(const ModelConfig& c, const Dealing& dealing) {
  const Cut columns = InnerColumns(c, dealing).cut(dealing.share);
  const std::int64_t inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::squared_relu;
  spec.params = squared_relu_params(c, columns);
  spec.saved = {{.columns = inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const double h = values_of_row(c, dealing);
  const auto i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * i;         // norm and residual sum; ReLU and square in place
  spec.backward.values = 6 * h + (4 + 7) * i;  // norm and square recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model

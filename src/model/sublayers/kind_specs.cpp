#include "qft/ops/delta_chunks.h"

#include "descriptions.h"

namespace qft::model {
namespace {

/// Returns the norm of q or k, which has the columns of `heads`.
ParamGroup norm_of(const char* path, const Cut& heads, const ModelConfig& c) {
  return {.tensor = path, .rows = c.qk_norm == QkNorm::heads ? Cut::none(c.head_dim) : heads};
}

/// Returns the channels of a delta net's convolution: those of q, of k and of v.
Cut channels_of(const ModelConfig& c, const Heads& heads, Share share) {
  const Cut keys = heads.key_cut(share, c.delta_net.key_dim);
  return Cut::joined({keys, keys, heads.cut(share, c.delta_net.value_dim)});
}

/// Returns the linears of the files: one for each kind of row, or (by_key_head) with all kinds grouped by key head.
std::vector<LinearSpec> projections(const ModelConfig& c, const Heads& heads, Share share) {
  const DeltaNetConfig& d = c.delta_net;
  const std::int64_t group = heads.per_key_head(), hidden = c.hidden_size;
  const auto of = [&](const char* name, const Cut& rows) {
    return LinearSpec::of_rows(name, std::string("linear_attn.") + name, rows, hidden);
  };
  if (d.by_key_head)
    return {of("in_proj_qkvz", heads.key_cut(share, 2 * (d.key_dim + group * d.value_dim))),
            of("in_proj_ba", heads.key_cut(share, 2 * group))};
  return {of("in_proj_qkv", channels_of(c, heads, share)), of("in_proj_z", heads.cut(share, d.value_dim)),
          of("in_proj_b", heads.cut(share, 1)), of("in_proj_a", heads.cut(share, 1))};
}

constexpr const char *kRouter = "gate", *kSharedRouter = "shared_expert_gate";

}  // namespace

SubLayerSpec describe_attention(const ModelConfig& c, std::int64_t window, const Dealing& dealing) {
  const Heads heads = attention_heads(c, dealing);
  const Cut asked = heads.cut(dealing.share, asked_dim(c)), of_q = heads.cut(dealing.share, c.head_dim),
            of_kv = heads.key_cut(dealing.share, c.head_dim);
  const std::int64_t hidden = c.hidden_size, q = of_q.count(), kv = of_kv.count(), qkv = asked.count() + 2 * kv;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::attention;
  spec.window = window;
  spec.heads = heads.deal(dealing.share);
  const std::int64_t num_heads = spec.heads.heads.count, num_kv_heads = spec.heads.key_heads.count;
  spec.params.push_back({.linears = {LinearSpec::of_rows("q_proj", "self_attn.q_proj", asked, hidden, c.qkv_bias),
                                     LinearSpec::of_rows("k_proj", "self_attn.k_proj", of_kv, hidden, c.qkv_bias),
                                     LinearSpec::of_rows("v_proj", "self_attn.v_proj", of_kv, hidden, c.qkv_bias)}});
  const bool qk_norm = c.qk_norm != QkNorm::none, by_head = c.qk_norm == QkNorm::heads;
  if (qk_norm) {
    spec.params.push_back(norm_of("self_attn.q_norm.weight", of_q, c));
    spec.params.push_back(norm_of("self_attn.k_norm.weight", of_kv, c));
  }
  spec.params.push_back({.linears = {LinearSpec::of_columns("o_proj", "self_attn.o_proj", hidden, of_q, c.o_bias)}});
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
  const auto h = static_cast<double>(hidden), rotated = static_cast<double>(q + kv), q_size = static_cast<double>(q);
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
  const Cut of_heads = heads.cut(dealing.share, 1), of_values = heads.cut(dealing.share, c.delta_net.value_dim);
  DeltaNetConfig d = c.delta_net;
  d.key_heads = mine.key_heads.count;
  d.value_heads = mine.heads.count;
  const std::int64_t channels = d.channels(), values = d.values(), columns = d.columns();
  const std::int64_t state = d.value_heads * d.key_dim * d.value_dim;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::delta_net;
  spec.heads = mine;
  spec.params = {
      {.linears = projections(c, heads, dealing.share)},
      {.tensor = "linear_attn.conv1d.weight", .rows = channels_of(c, heads, dealing.share), .inner = {1, d.taps}, .decays = true},
      {.tensor = "linear_attn.dt_bias", .rows = of_heads},
      {.tensor = "linear_attn.A_log", .rows = of_heads, .decays = true},
      {.tensor = "linear_attn.norm.weight", .rows = Cut::none(d.value_dim)},
      {.linears = {LinearSpec::of_columns("out_proj", "linear_attn.out_proj", c.hidden_size, of_values)}}};
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
  const auto h = static_cast<double>(c.hidden_size), all = static_cast<double>(columns), v = static_cast<double>(values);
  // For each chunk, the rule reads and writes a state, and the chunk's products with the state and with itself.
  const auto rule = static_cast<double>(2 * state / ops::kDeltaChunk + channels);
  spec.forward.values = 5 * h + 3 * all + 4 * v + rule;
  spec.backward.values = 6 * h + 8 * all + 8 * v + 3 * rule;
  return spec;
}

bool is_router(std::string_view name) {
  return name == kRouter || name == kSharedRouter;
}

SubLayerSpec describe_experts(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  const std::int64_t hidden = c.hidden_size, inner = e.intermediate_size, shared = e.shared_size, k = e.per_token;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::experts;
  const std::string block = e.block + ".", experts = block + "experts";
  const auto into = [](const std::string& name, const std::string& path, std::int64_t out, std::int64_t in) {
    return LinearSpec::of_rows(name, path, Cut::none(out), in);
  };
  const auto out_of = [&](const std::string& name, const std::string& path, std::int64_t in) {
    return LinearSpec::of_columns(name, path, hidden, Cut::none(in));
  };
  spec.params = {{.linears = {into(kRouter, block + kRouter, e.count, hidden)}},
                 {.linears = {into(e.gate, e.gate, inner, hidden), into(e.up, e.up, inner, hidden)},
                  .stack = {e.count, k, experts, "gate_up_proj", e.fused}},
                 {.linears = {out_of(e.down, e.down, inner)}, .stack = {e.count, k, experts, "down_proj", e.fused}}};
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
  // Inserted before the experts' down projection: linears that read the sub-layer's input come first.
  spec.params.insert(spec.params.begin() + 2, {{.linears = {into("gate_proj", block + "shared_expert.gate_proj", shared, hidden),
                                                            into("up_proj", block + "shared_expert.up_proj", shared, hidden)}},
                                               {.linears = {into(kSharedRouter, block + kSharedRouter, 1, hidden)}}});
  spec.params.push_back({.linears = {out_of("down_proj", block + "shared_expert.down_proj", shared)}});
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
  const std::int64_t hidden = c.hidden_size, inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::swiglu;
  spec.params = {{.linears = {LinearSpec::of_rows("gate_proj", "mlp.gate_proj", columns, hidden, c.mlp_bias),
                              LinearSpec::of_rows("up_proj", "mlp.up_proj", columns, hidden, c.mlp_bias)}},
                 {.linears = {LinearSpec::of_columns("down_proj", "mlp.down_proj", hidden, columns, c.mlp_bias)}}};
  spec.saved = {{.columns = 2 * inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 3 * i;         // norm and residual sum; gate, up and their product
  spec.backward.values = 6 * h + (3 + 5) * i;  // norm and product recomputed; their gradients, including the residual's
  return spec;
}

SubLayerSpec describe_squared_relu(const ModelConfig& c, const Dealing& dealing) {
  const Cut columns = InnerColumns(c, dealing).cut(dealing.share);
  const std::int64_t hidden = c.hidden_size, inner = columns.count();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::squared_relu;
  spec.params = {{.linears = {LinearSpec::of_rows("up_proj", "mlp.up_proj", columns, hidden, c.mlp_bias)}},
                 {.linears = {LinearSpec::of_columns("down_proj", "mlp.down_proj", hidden, columns, c.mlp_bias)}}};
  spec.saved = {{.columns = inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * i;         // norm and residual sum; ReLU and square in place
  spec.backward.values = 6 * h + (4 + 7) * i;  // norm and square recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model

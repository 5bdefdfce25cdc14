#include "qft/ops/delta_chunks.h"

#include "descriptions.h"

namespace qft::model {
namespace {

/// Returns the norm of q or k, which has `columns` columns.
ParamGroup norm_of(const char* path, std::int64_t columns, const ModelConfig& c) {
  ParamGroup group;
  group.tensor = path;
  group.per_head = c.qk_norm == QkNorm::heads;
  group.of_heads = !group.per_head;
  group.shape = {group.per_head ? c.head_dim : columns};
  return group;
}

/// Returns the linears of the files: one for each kind of row, or (by_key_head) with all kinds grouped by key head.
std::vector<LinearSpec> projections(const DeltaNetConfig& d, std::int64_t hidden) {
  if (d.by_key_head)
    return {{"in_proj_qkvz", "linear_attn.in_proj_qkvz", d.channels() + d.values(), hidden},
            {"in_proj_ba", "linear_attn.in_proj_ba", 2 * d.value_heads, hidden}};
  return {{"in_proj_qkv", "linear_attn.in_proj_qkv", d.channels(), hidden},
          {"in_proj_z", "linear_attn.in_proj_z", d.values(), hidden},
          {"in_proj_b", "linear_attn.in_proj_b", d.value_heads, hidden},
          {"in_proj_a", "linear_attn.in_proj_a", d.value_heads, hidden}};
}

constexpr const char *kRouter = "gate", *kSharedRouter = "shared_expert_gate";

}  // namespace

SubLayerSpec describe_attention(const ModelConfig& c, std::int64_t window) {
  const std::int64_t hidden = c.hidden_size, q = c.q_size(), kv = c.kv_size();
  SubLayerSpec spec;
  spec.kind = SubLayerKind::attention;
  spec.window = window;
  const std::int64_t asked = (c.attention_gate ? 2 : 1) * q;  // each head's gate follows its q
  spec.params.push_back({.linears = {{"q_proj", "self_attn.q_proj", asked, hidden, c.qkv_bias},
                                     {"k_proj", "self_attn.k_proj", kv, hidden, c.qkv_bias},
                                     {"v_proj", "self_attn.v_proj", kv, hidden, c.qkv_bias}}});
  const bool qk_norm = c.qk_norm != QkNorm::none, by_head = c.qk_norm == QkNorm::heads;
  if (qk_norm) {
    spec.params.push_back(norm_of("self_attn.q_norm.weight", q, c));
    spec.params.push_back(norm_of("self_attn.k_norm.weight", kv, c));
  }
  spec.params.push_back({.linears = {{"o_proj", "self_attn.o_proj", hidden, q, c.o_bias, Split::columns}}});
  spec.saved = {
      {.columns = c.qkv_size()}, {.columns = q}, {.columns = c.num_heads, .type = SavedType::statistic, .transposed = true}};
  if (qk_norm) {
    spec.saved.push_back({.columns = q + kv});
    spec.saved.push_back({.columns = by_head ? c.num_heads : 1, .type = SavedType::statistic});
    spec.saved.push_back({.columns = by_head ? c.num_kv_heads : 1, .type = SavedType::statistic});
  }
  spec.scratch = {{"gattention", q, /*backward_only=*/true}, {"gqkv", c.qkv_size(), /*backward_only=*/true}};
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

SubLayerSpec describe_delta_net(const ModelConfig& c) {
  const DeltaNetConfig& d = c.delta_net;
  const std::int64_t channels = d.channels(), values = d.values(), columns = d.columns();
  const std::int64_t state = d.value_heads * d.key_dim * d.value_dim;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::delta_net;
  spec.params = {{.linears = projections(d, c.hidden_size)},
                 {.tensor = "linear_attn.conv1d.weight", .shape = {channels, 1, d.taps}, .decays = true, .of_heads = true},
                 {.tensor = "linear_attn.dt_bias", .shape = {d.value_heads}, .of_heads = true},
                 {.tensor = "linear_attn.A_log", .shape = {d.value_heads}, .decays = true, .of_heads = true},
                 {.tensor = "linear_attn.norm.weight", .shape = {d.value_dim}, .per_head = true},
                 {.linears = {{"out_proj", "linear_attn.out_proj", c.hidden_size, values, false, Split::columns}}}};
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
  spec.params = {{.linears = {{kRouter, block + kRouter, e.count, hidden}}},
                 {.linears = {{e.gate, e.gate, inner, hidden}, {e.up, e.up, inner, hidden}},
                  .stack = {e.count, k, experts, "gate_up_proj", e.fused}},
                 {.linears = {{e.down, e.down, hidden, inner, false, Split::columns}},
                  .stack = {e.count, k, experts, "down_proj", e.fused}}};
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
  spec.params.insert(spec.params.begin() + 2, {{.linears = {{"gate_proj", block + "shared_expert.gate_proj", shared, hidden},
                                                            {"up_proj", block + "shared_expert.up_proj", shared, hidden}}},
                                               {.linears = {{kSharedRouter, block + kSharedRouter, 1, hidden}}}});
  spec.params.push_back({.linears = {{"down_proj", block + "shared_expert.down_proj", hidden, shared, false, Split::columns}}});
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

SubLayerSpec describe_swiglu(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::swiglu;
  spec.params = {{.linears = {{"gate_proj", "mlp.gate_proj", inner, hidden, c.mlp_bias},
                              {"up_proj", "mlp.up_proj", inner, hidden, c.mlp_bias}}},
                 {.linears = {{"down_proj", "mlp.down_proj", hidden, inner, c.mlp_bias, Split::columns}}}};
  spec.saved = {{.columns = 2 * inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 3 * i;         // norm and residual sum; gate, up and their product
  spec.backward.values = 6 * h + (3 + 5) * i;  // norm and product recomputed; their gradients, including the residual's
  return spec;
}

SubLayerSpec describe_squared_relu(const ModelConfig& c) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size;
  SubLayerSpec spec;
  spec.kind = SubLayerKind::squared_relu;
  spec.params = {{.linears = {{"up_proj", "mlp.up_proj", inner, hidden, c.mlp_bias}}},
                 {.linears = {{"down_proj", "mlp.down_proj", hidden, inner, c.mlp_bias, Split::columns}}}};
  spec.saved = {{.columns = inner}};
  spec.scratch = {{"act", inner}, {"gact", inner, /*backward_only=*/true}};
  const auto h = static_cast<double>(hidden), i = static_cast<double>(inner);
  spec.forward.values = 5 * h + 4 * i;         // norm and residual sum; ReLU and square in place
  spec.backward.values = 6 * h + (4 + 7) * i;  // norm and square recomputed; their gradients, including the residual's
  return spec;
}

}  // namespace qft::model

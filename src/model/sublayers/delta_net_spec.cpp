#include "qft/ops/delta_chunks.h"

#include "descriptions.h"

namespace qft::model {
namespace {

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

}  // namespace

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

}  // namespace qft::model

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

}  // namespace qft::model

#include "qft/model/architectures.h"

#include "qft/core/error.h"

#include <array>

#include "architecture.h"

namespace qft::model {
namespace {

constexpr Bias kAlways{nullptr, true}, kAttentionBias{"attention_bias", false}, kMlpBias{"mlp_bias", false};

constexpr auto kArchitectures = std::to_array<Architecture>({
    {.model_type = "llama", .hf_class = "LlamaForCausalLM", .qkv = kAttentionBias, .o = kAttentionBias, .mlp = kMlpBias},
    {.model_type = "mistral", .hf_class = "MistralForCausalLM", .windows = Windows::all},
    {.model_type = "mixtral",
     .hf_class = "MixtralForCausalLM",
     .default_eps = 1e-5,
     .default_theta = 1e6,
     .windows = Windows::if_sized,
     .experts = Experts::mixtral},
    {.model_type = "qwen2", .hf_class = "Qwen2ForCausalLM", .qkv = kAlways, .windows = Windows::by_layer},
    {.model_type = "qwen2_moe",
     .hf_class = "Qwen2MoeForCausalLM",
     .qkv = {"qkv_bias", true},
     .windows = Windows::by_layer,
     .experts = Experts::qwen_shared},
    {.model_type = "qwen3",
     .hf_class = "Qwen3ForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 128,
     .windows = Windows::by_layer},
    {.model_type = "qwen3_moe",
     .hf_class = "Qwen3MoeForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 128,
     .windows = Windows::if_enabled,
     .experts = Experts::qwen},
    {.model_type = "qwen3_5",
     .hf_class = "Qwen3_5ForConditionalGeneration",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 256,
     .hybrid = Hybrid::separate,
     .norms = NormKind::zero_centred},
    {.model_type = "qwen3_5_moe",
     .hf_class = "Qwen3_5MoeForConditionalGeneration",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 256,
     .experts = Experts::qwen_shared,
     .hybrid = Hybrid::separate,
     .norms = NormKind::zero_centred},
    {.model_type = "qwen3_5_moe_text",
     .hf_class = "Qwen3_5MoeForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 256,
     .experts = Experts::qwen_shared,
     .hybrid = Hybrid::separate,
     .norms = NormKind::zero_centred,
     .package = "qwen3_5_moe"},
    {.model_type = "qwen3_5_text",
     .hf_class = "Qwen3_5ForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 256,
     .hybrid = Hybrid::separate,
     .norms = NormKind::zero_centred,
     .package = "qwen3_5"},
    {.model_type = "qwen3_next",
     .hf_class = "Qwen3NextForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::heads,
     .default_head_dim = 256,
     .experts = Experts::qwen_shared,
     .hybrid = Hybrid::by_key_head,
     .norms = NormKind::zero_centred},
    {.model_type = "olmo2",
     .hf_class = "Olmo2ForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .qk_norm = QkNorm::whole,
     .default_eps = 1e-5,
     .norms = NormKind::rounded_last,
     .norm_after = true},
    {.model_type = "arcee",
     .hf_class = "ArceeForCausalLM",
     .qkv = kAttentionBias,
     .o = kAttentionBias,
     .mlp = kMlpBias,
     .default_eps = 1e-5,
     .feed_forward = FeedForward::squared_relu},
});

}  // namespace

const Architecture& architecture_of(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const auto& row : kArchitectures) {
    if (model_type == row.model_type) return row;
    known += known.empty() ? row.model_type : std::string(", ") + row.model_type;
  }
  fail("{}: model_type '{}' is not implemented (implemented: {})", where, model_type, known);
}

std::string modeling_module(const std::string& model_type) {
  const Architecture& row = architecture_of(model_type, "config.json");
  return fmt::format("transformers.models.{0}.modeling_{0}", row.package != nullptr ? row.package : row.model_type);
}

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names;
  for (const auto& row : kArchitectures) names.emplace_back(row.model_type);
  return names;
}

}  // namespace qft::model

#include "qft/core/error.h"
#include "qft/model/config.h"

#include <array>

#include "architecture.h"

namespace qft::model {
namespace {

constexpr Bias kAlways{nullptr, true}, kAttentionBias{"attention_bias", false}, kMlpBias{"mlp_bias", false};

/// The properties that Qwen3's successors share: hybrids of gated attention and gated delta nets.
constexpr Architecture hybrid(const char* model_type, const char* hf_class, Experts experts, Hybrid kind = Hybrid::separate) {
  return {.model_type = model_type,
          .hf_class = hf_class,
          .qkv = kAttentionBias,
          .o = kAttentionBias,
          .qk_norm = QkNorm::heads,
          .default_head_dim = 256,
          .experts = experts,
          .hybrid = kind,
          .norms = NormKind::zero_centred};
}

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
    hybrid("qwen3_5", "Qwen3_5ForConditionalGeneration", Experts::none),
    hybrid("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", Experts::qwen_shared),
    hybrid("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", Experts::qwen_shared),
    hybrid("qwen3_5_text", "Qwen3_5ForCausalLM", Experts::none),
    hybrid("qwen3_next", "Qwen3NextForCausalLM", Experts::qwen_shared, Hybrid::by_key_head),
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
  std::string_view package = architecture_of(model_type, "config.json").model_type;
  if (package.ends_with("_text")) package.remove_suffix(5);
  return fmt::format("transformers.models.{0}.modeling_{0}", package);
}

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names;
  for (const auto& row : kArchitectures) names.emplace_back(row.model_type);
  return names;
}

}  // namespace qft::model

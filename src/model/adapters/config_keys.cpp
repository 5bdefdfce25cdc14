#include "config_keys.h"

#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <string_view>

#include "json_keys.h"

namespace qft::model {
namespace {

using nlohmann::json;

enum class Effect { read, none, rejected };

struct KeyRule {
  std::string_view peft_type;  ///< empty: every adapter kind
  std::string_view key;
  Effect effect;
  std::string_view reason = {};  ///< rejected: the key's effect and the remedy
};

constexpr std::string_view kLoraType = "LORA", kOftType = "OFT";
constexpr std::string_view kMergeInPeft = "merge it in PEFT (merge_and_unload) and use the merged model as model_name_or_path";

/// Keys of PEFT's LoraConfig and OFTConfig, additions by ms-swift and older PEFT, and common keys.
constexpr KeyRule kRules[] = {
    {"", "peft_type", Effect::read},
    {"", "task_type", Effect::read},
    {"", "base_model_name_or_path", Effect::read},
    {"", "bias", Effect::read},
    {"", "modules_to_save", Effect::read},
    {"", "target_modules", Effect::read},
    {"", "peft_version", Effect::read},
    {"", "auto_mapping", Effect::none},
    {"", "revision", Effect::none},
    {"", "inference_mode", Effect::none},
    {"", "layers_pattern", Effect::none},  // only used with layers_to_transform
    {"", "layers_to_transform", Effect::rejected, kMergeInPeft},
    {"", "exclude_modules", Effect::rejected, kMergeInPeft},
    {"", "fan_in_fan_out", Effect::rejected, "none of these models stores its linears transposed; set it to false"},

    {kLoraType, "r", Effect::read},
    {kLoraType, "lora_alpha", Effect::read},
    {kLoraType, "lora_dropout", Effect::read},
    {kLoraType, "use_rslora", Effect::read},
    {kLoraType, "use_dora", Effect::read},
    {kLoraType, "init_lora_weights", Effect::read},
    {kLoraType, "target_parameters", Effect::read},
    {kLoraType, "rank_pattern", Effect::read},
    {kLoraType, "alpha_pattern", Effect::read},
    // Only used for initialisation (already converted) or training; a loaded adapter does not need them.
    {kLoraType, "eva_config", Effect::none},
    {kLoraType, "corda_config", Effect::none},
    {kLoraType, "loftq_config", Effect::none},
    {kLoraType, "lora_ga_config", Effect::none},
    {kLoraType, "velora_config", Effect::none},
    {kLoraType, "megatron_config", Effect::none},
    {kLoraType, "megatron_core", Effect::none},
    {kLoraType, "runtime_config", Effect::none},
    {kLoraType, "qalora_group_size", Effect::none},
    {kLoraType, "merge_weights", Effect::none},
    {kLoraType, "lora_dtype", Effect::none},
    {kLoraType, "lorap_lr_ratio", Effect::none},
    {kLoraType, "lorap_emb_lr", Effect::none},
    {kLoraType, "lora_bias", Effect::rejected, kMergeInPeft},
    {kLoraType, "layer_replication", Effect::rejected, "layers are used several times: the adapter belongs to a deeper model"},
    {kLoraType, "use_qalora", Effect::rejected, "its factors belong to input groups of a quantised model; use it in PEFT"},
    {kLoraType, "trainable_token_indices", Effect::rejected, kMergeInPeft},
    {kLoraType, "ensure_weight_tying", Effect::rejected, kMergeInPeft},
    {kLoraType, "alora_invocation_tokens", Effect::rejected,
     "the adapter is active only after these tokens (activated LoRA) and cannot be merged; use it in PEFT, or train plain LoRA"},
    {kLoraType, "use_bdlora", Effect::rejected, kMergeInPeft},
    {kLoraType, "arrow_config", Effect::rejected, "it chooses among several adapters for each token; use it in PEFT"},
    {kLoraType, "kasa_config", Effect::rejected, kMergeInPeft},
    {kLoraType, "monteclora_config", Effect::rejected, kMergeInPeft},

    {kOftType, "r", Effect::read},
    {kOftType, "oft_block_size", Effect::read},
    {kOftType, "block_share", Effect::read},
    {kOftType, "use_cayley_neumann", Effect::read},
    {kOftType, "num_cayley_neumann_terms", Effect::read},
    {kOftType, "module_dropout", Effect::none},
    {kOftType, "init_weights", Effect::none},
    {kOftType, "eps", Effect::none},  // only used with coft
    {kOftType, "coft", Effect::rejected, kMergeInPeft},
};

const KeyRule* rule_of(std::string_view key, std::string_view peft_type) {
  const auto found = std::ranges::find_if(
      kRules, [&](const KeyRule& rule) { return rule.key == key && (rule.peft_type.empty() || rule.peft_type == peft_type); });
  return found == std::end(kRules) ? nullptr : &*found;
}

/// PEFT switches methods on with true, lists and objects; numbers and texts are their settings.
bool turns_on(const json& value) {
  return value.is_boolean() || value.is_structured();
}

}  // namespace

void check_adapter_keys(const json& config, const std::string& peft_type, const std::string& where) {
  for (const auto& [key, value] : config.items()) {
    if (is_empty(value)) continue;
    const KeyRule* rule = rule_of(key, peft_type);
    if (rule == nullptr && !turns_on(value))
      log::warn_once(fmt::format("{}: {} = {} is not known to qft and ignored: was the adapter made with a newer PEFT?", where,
                                 key, value.dump()));
    else if (rule == nullptr)
      fail(
          "{}: {} = {} is not known to qft and may change the adapter's result (from a newer PEFT?): {}, or remove the key if it "
          "has no effect",
          where, key, value.dump(), kMergeInPeft);
    else if (rule->effect == Effect::rejected)
      fail("{}: {} = {} is not implemented: {}", where, key, value.dump(), rule->reason);
  }
}

}  // namespace qft::model

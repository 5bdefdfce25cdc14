#include "qft/model/adapter_config.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/io/file.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "adapters/json_keys.h"
#include "adapters/kinds.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

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

/// Checks all keys. Throws Error, naming the key, if a key with a value changes the computation or an unknown key is switched on;
/// warns of other values of unknown keys.
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

/// PEFT's module names for a classification head, which depend on the model. ms-swift adds its reward models' name.
constexpr std::string_view kHeadModules[] = {"score", "classifier", "v_head"};

/// For a classifier's adapter: takes the labels from its head, which then does not count as a module to save.
void set_labels(AdapterTargets& targets, const std::filesystem::path& dir, const std::string& where) {
  std::erase_if(targets.modules_to_save,
                [](const std::string& module) { return std::ranges::find(kHeadModules, module) != std::end(kHeadModules); });
  const std::filesystem::path path = io::adapter_weights_of(dir);
  if (!std::filesystem::exists(path)) return;  // the reader of the weights reports this
  const auto file = io::open_tensor_file(path);
  const std::string name = std::string(kAdapterPrefix) + kScore;
  const io::TensorEntry* head = file->find(name);
  require(head != nullptr && head->shape.size() == 2 && head->shape.front() >= 1,
          "{}: task_type is SEQ_CLS, but '{}' has no classification head: matrix '{}' is missing", where, path.string(), name);
  targets.labels = head->shape.front();
}

// Returns the path of the adapter's configuration.
std::filesystem::path config_of(const std::filesystem::path& dir) {
  std::error_code code;
  if (!std::filesystem::exists(dir, code)) fail_config("adapter folder '{}' does not exist", dir.string());
  const auto path = member_of(dir, kAdapterConfigFile);
  if (!std::filesystem::exists(path, code))
    fail_config("'{}' has no {}: it is not an adapter{}", dir.string(), kAdapterConfigFile,
                std::filesystem::exists(dir / io::kModelConfigFile, code) ? ", but a whole model" : "");
  return path;
}

/// Returns the prefix of the decoder's module names in an adapter's file; empty if it has no such modules or does not exist.
std::string text_prefix_in(const std::filesystem::path& dir) {
  const std::filesystem::path path = io::adapter_weights_of(dir);
  if (!std::filesystem::exists(path)) return {};  // the reader of the weights reports this
  const auto file = io::open_tensor_file(path);
  for (const std::string_view prefix : kTextPrefixes)
    for (const io::TensorEntry& entry : file->entries())
      if (entry.name.starts_with(kAdapterPrefix + std::string(prefix) + "layers.")) return std::string(prefix);
  return {};
}

/// Throws Error if no kind has this name.
const AdapterKind& kind_called(const std::string& type, const std::string& where) {
  std::vector<std::string> known;
  for (const AdapterKind& kind : adapter_kinds()) {
    if (kind.peft_type == type) return kind;
    known.emplace_back(kind.peft_type);
  }
  fail("{}: peft_type {} is not implemented (implemented: {})", where, type, fmt::join(known, ", "));
}

}  // namespace

void read_targets(AdapterTargets& targets, const json& modules, const std::string& more, const std::string& where) {
  std::string list = more;
  if (modules.is_string() && modules != "all-linear") {
    require(
        more.empty(),
        "{}: target_modules is the expression '{}', which cannot be combined with routers in target_parameters: list the modules",
        where, modules.get<std::string>());
    targets.target_pattern = modules.get<std::string>();
    return;
  }
  if (modules.is_string()) {
    list += "all";
  } else {
    require(modules.is_array(), "{}: target_modules is {}, expected a list", where, modules.dump());
    for (const auto& t : modules) list += t.get<std::string>() + ",";
  }
  targets.set_targets(list);
}

bool has_expert_modules(const std::filesystem::path& dir) {
  const std::filesystem::path path = io::adapter_weights_of(dir);
  if (!std::filesystem::exists(path)) return true;  // the reader of the weights reports this
  const auto file = io::open_tensor_file(path);
  return std::ranges::any_of(file->entries(),
                             [](const io::TensorEntry& entry) { return entry.name.find(".experts.0.") != std::string::npos; });
}

nlohmann::json read_adapter_json(const std::filesystem::path& dir) {
  return io::read_json(config_of(dir));
}

AdapterConfig read_adapter_config(const std::filesystem::path& dir) {
  const std::string where = config_of(dir).string();
  const json config = read_adapter_json(dir);
  require(config.is_object(), "{}: expected a JSON object", where);
  try {
    const AdapterKind& kind = kind_called(value_or<std::string>(config, "peft_type", "LORA"), where);
    check_adapter_keys(config, kind.peft_type, where);
    AdapterConfig adapter = kind.read(config, dir, where);
    adapter.targets().text_prefix = text_prefix_in(dir);
    if (config.value("task_type", json()) == "SEQ_CLS") set_labels(adapter.targets(), dir, where);
    return adapter;
  } catch (const json::exception& e) {
    fail("{}: {}", where, e.what());
  }
}

std::string read_base_model_name(const std::filesystem::path& dir) {
  const json config = read_adapter_json(dir);
  const json name = config.is_object() ? config.value("base_model_name_or_path", json()) : json();
  return name.is_string() ? name.get<std::string>() : std::string();
}

std::string adapter_config_json(const AdapterConfig& adapter, const std::string& base_model_name_or_path) {
  const AdapterKind* kind = kind_of(adapter);
  QFT_ASSERT(kind != nullptr, "'{}' has no adapter to write", base_model_name_or_path);
  const AdapterTargets& targets = adapter.targets();
  std::vector<std::string> modules = targets.modules_to_save;
  if (targets.labels > 0) modules.emplace_back(kHeadModules[0]);
  json config = {{"auto_mapping", nullptr},
                 {"base_model_name_or_path", base_model_name_or_path},
                 {"bias", "none"},
                 {"fan_in_fan_out", false},
                 {"inference_mode", true},
                 {"layers_pattern", nullptr},
                 {"layers_to_transform", nullptr},
                 {"modules_to_save", modules.empty() ? json() : json(modules)},
                 {"peft_type", kind->peft_type},
                 {"revision", nullptr},
                 {"target_modules", targets.target_pattern.empty() ? json(targets.targets) : json(targets.target_pattern)},
                 {"task_type", targets.labels > 0 ? "SEQ_CLS" : "CAUSAL_LM"}};
  config.update(kind->write(adapter));
  return config.dump(2) + "\n";
}

}  // namespace qft::model

#include "qft/model/adapter_config.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "adapters/config_keys.h"
#include "adapters/json_keys.h"
#include "adapters/kinds.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

using nlohmann::json;

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

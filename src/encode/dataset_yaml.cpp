#include "dataset_yaml.h"

#include "qft/config/yaml.h"
#include "qft/core/error.h"
#include "qft/io/file.h"

#include <array>
#include <string_view>

#include <yaml-cpp/yaml.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A version 1 converter and its equivalent in dataset_info.json.
struct Converter {
  std::string_view name;
  const char* entry;
};
constexpr std::array kConverters = {
    Converter{"alpaca", R"({"formatting": "alpaca", "columns": {"prompt": "instruction", "query": "input", "response": "output",
                            "system": "system"}})"},
    Converter{"sharegpt", R"({"formatting": "sharegpt", "columns": {"messages": "conversations", "tools": "tools"}})"},
    Converter{"pair", R"({"formatting": "sharegpt", "ranking": true,
                          "columns": {"messages": "chosen", "chosen": "chosen", "rejected": "rejected", "tools": "tools"},
                          "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant",
                                   "observation_tag": "tool", "system_tag": "system"}})"},
};
// Records in version 1's own form: one conversation, or two for a pair.
constexpr const char* kOwnTags = R"({"role_tag": "role", "content_tag": "content", "user_tag": "user",
                                     "assistant_tag": "assistant", "observation_tag": "tool", "system_tag": "system"})";
constexpr const char* kOwnRecords = R"({"formatting": "blocks", "columns": {"messages": "messages", "tools": "tools"}})";
constexpr const char* kOwnPairs = R"({"formatting": "blocks", "ranking": true,
                                      "columns": {"messages": "chosen_messages", "chosen": "chosen_messages",
                                                  "rejected": "rejected_messages", "tools": "tools"}})";

class Description {
 public:
  Description(const fs::path& file, const std::string& name, const YAML::Node& node, bool pairs) : node_(node), pairs_(pairs) {
    where_ = fmt::format("{}:{}: {}", file.string(), node.Mark().line + 1, name);
    if (!node.IsMap()) fail_config("{}: expected keys such as path, source and converter", where_);
  }

  json entry() const {
    json entry = format();
    place(entry);
    for (const auto& member : node_) {
      const auto key = member.first.as<std::string>();
      if (key == "size") {
        entry["num_samples"] = number(key);
      } else if (key == "weight" && text(key) != "1" && text(key) != "1.0" && !member.second.IsNull()) {
        fail_config("{}: weight is {}, which is not implemented; set size to the number of records to draw", where_, text(key));
      } else if (key == "streaming" && text(key) == "true") {
        fail_config("{}: streaming: version 1 does not train on streamed data, and qft reads packs on demand; remove it", where_);
      } else if (key != "path" && key != "source" && key != "split" && key != "converter" && key != "weight" &&
                 key != "streaming") {
        entry[key] = text(key);  // a warning will name it
      }
    }
    return entry;
  }

 private:
  std::string text(const std::string& key) const {
    const YAML::Node value = node_[key];
    if (!value || value.IsNull()) return {};
    if (!value.IsScalar()) fail_config("{}: {}: expected one value", where_, key);
    return value.Scalar();
  }

  json number(const std::string& key) const {
    const std::string digits = text(key);
    if (digits.empty()) return nullptr;
    if (digits.size() > 15 || digits.find_first_not_of("0123456789") != digits.npos) return digits;
    return std::stoll(digits);
  }

  json format() const {
    const std::string word = text("converter");
    if (word.empty()) {
      json own = json::parse(pairs_ ? kOwnPairs : kOwnRecords);
      own["tags"] = json::parse(kOwnTags);
      return own;
    }
    for (const Converter& converter : kConverters)
      if (converter.name == word) return json::parse(converter.entry);
    fail_config("{}: converter '{}' is unknown; use alpaca, sharegpt or pair", where_, word);
  }

  // Relative paths start at the working directory, as in version 1.
  void place(json& entry) const {
    const std::string path = text("path"), source = text("source"), split = text("split");
    if (path.empty()) fail_config("{}: has no path", where_);
    if (source != "local" && source != "hf_hub" && !source.empty())
      fail_config("{}: source '{}' is unknown; use local or hf_hub", where_, source);
    if (source == "local")
      entry["file_name"] = fs::absolute(path).lexically_normal().string();
    else
      entry["hf_hub_url"] = path;
    if (!split.empty()) entry["split"] = split;
  }

  const YAML::Node& node_;
  bool pairs_;
  std::string where_;
};

}  // namespace

std::optional<std::pair<fs::path, std::string>> part_of_yaml(const std::string& name) {
  for (const std::string_view ending : {".yaml:", ".yml:"}) {
    const std::size_t at = name.find(ending);
    if (at == name.npos) continue;
    const std::size_t colon = at + ending.size() - 1;
    std::error_code code;
    if (fs::is_regular_file(name.substr(0, colon), code))
      return std::pair{fs::path(name.substr(0, colon)), name.substr(colon + 1)};
  }
  return std::nullopt;
}

json read_dataset_yaml(const fs::path& file, const config::Stage* stage) {
  const std::string text = io::read_text_file(file);
  config::require_plain_yaml(text, file.string());
  const YAML::Node document = YAML::Load(text);
  if (!document.IsMap())
    fail_config(
        "{}: expected datasets by name, as in 'identity: {{path: data/identity.json, source: "
        "local, converter: alpaca}}'",
        file.string());
  json entries = json::object();
  const bool pairs = stage != nullptr && stage->has_pairs();
  for (const auto& dataset : document) {
    const auto name = dataset.first.as<std::string>();
    entries[name] = Description(file, name, dataset.second, pairs).entry();
  }
  return entries;
}

}  // namespace qft::encode

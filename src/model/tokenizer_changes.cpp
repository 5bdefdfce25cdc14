#include "qft/model/tokenizer_changes.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kEndToken = "eos_token";
constexpr const char* kPadToken = "pad_token";
constexpr const char* kEndIds = "eos_token_id";
constexpr const char* kTemplateKey = "chat_template";
constexpr const char* kToolTemplate = "tool_use";

/// Reads an object; an empty one if the file does not exist.
Json read_object(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json object = parse_json<Json>(io::read_text_file(path), path.string());
  require(object.is_object(), "'{}' is not a JSON object", path.string());
  return object;
}

void write_object(io::Storage& storage, const fs::path& path, const Json& object) {
  io::write_file(storage, path, object.dump(2) + "\n");
}

/// Returns the text of a configuration's token, given as text or as an object.
std::string token_text(const Json& config, const char* key) {
  const auto value = config.find(key);
  if (value == config.end()) return {};
  if (value->is_object()) return value->value("content", "");
  return value->is_string() ? value->get<std::string>() : std::string();
}

void set_token(Json& config, const char* key, const std::string& text) {
  if (config.contains(key) && config[key].is_object())
    config[key]["content"] = text;
  else
    config[key] = text;
}

std::string end_token_of(const fs::path& dir) {
  const std::string token = token_text(read_object(dir / io::kTokenizerConfigFile), kEndToken);
  return token.empty() ? token_text(read_object(dir / io::kSpecialTokensFile), kEndToken) : token;
}

std::optional<std::int32_t> id_of(const fs::path& dir, const std::string& token) {
  const Json tokenizer = read_object(dir / io::kTokenizerFile);
  for (const Json& added : tokenizer.value("added_tokens", Json::array()))
    if (added.is_object() && added.value("content", "") == token && added.contains("id")) return added["id"].get<std::int32_t>();
  const Json vocabulary = tokenizer.value("model", Json::object()).value("vocab", Json::object());
  if (vocabulary.is_object() && vocabulary.contains(token)) return vocabulary[token].get<std::int32_t>();
  return std::nullopt;
}

/// The written paths, each once.
class Written {
 public:
  explicit Written(std::vector<fs::path> paths) : paths_(std::move(paths)) {}
  void add(const fs::path& path) {
    if (!has(path)) paths_.push_back(path);
  }
  void drop(const fs::path& path) { std::erase(paths_, path); }
  bool has(const fs::path& path) const { return std::ranges::find(paths_, path) != paths_.end(); }
  bool any_in(const fs::path& folder) const {
    return std::ranges::any_of(paths_, [&](const fs::path& path) { return path.parent_path() == folder; });
  }
  std::vector<fs::path> take() { return std::move(paths_); }

 private:
  std::vector<fs::path> paths_;
};

/// Writes a list's named templates as files, like transformers, which ignores the list beside chat_template.jinja.
void move_listed(io::Storage& storage, const fs::path& to, const io::ChatTemplates& templates, Written& written) {
  for (const auto& [name, text] : templates.named) {
    const fs::path file = fs::path(io::kNamedTemplatesFolder) / (name + ".jinja");
    if (written.has(file) || name.find_first_of("/\\") != name.npos) continue;
    storage.create_directory(to / io::kNamedTemplatesFolder);
    io::write_file(storage, to / file, text);
    written.add(file);
  }
}

/// transformers' processors read this file first, and reject it beside named templates.
void set_old_template(io::Storage& storage, const fs::path& to, const std::string& text, Written& written) {
  if (written.any_in(io::kNamedTemplatesFolder)) {
    storage.remove(to / io::kLegacyChatTemplateFile);
    written.drop(io::kLegacyChatTemplateFile);
  } else {
    write_object(storage, to / io::kLegacyChatTemplateFile, {{kTemplateKey, text}});
  }
}

void set_template(io::Storage& storage, const fs::path& tokenizer, const fs::path& to, const std::string& text,
                  Written& written) {
  move_listed(storage, to, with_trained_template(io::read_chat_templates(tokenizer), text), written);
  for (const char* name : {kToolTemplate, io::kDefaultTemplate}) {
    const fs::path file = fs::path(io::kNamedTemplatesFolder) / (std::string(name) + ".jinja");
    if (!written.has(file)) continue;
    storage.remove(to / file);
    written.drop(file);
  }
  io::write_file(storage, to / io::kChatTemplateFile, text);
  written.add(io::kChatTemplateFile);
  if (written.has(io::kLegacyChatTemplateFile)) set_old_template(storage, to, text, written);
  if (!written.has(io::kTokenizerConfigFile)) return;
  Json config = read_object(to / io::kTokenizerConfigFile);
  if (!config.contains(kTemplateKey)) return;
  if (config[kTemplateKey].is_string())
    config[kTemplateKey] = text;
  else
    config.erase(kTemplateKey);
  write_object(storage, to / io::kTokenizerConfigFile, config);
}

void set_end_token(io::Storage& storage, const fs::path& to, const std::string& token, Written& written) {
  Json config = read_object(to / io::kTokenizerConfigFile), map = read_object(to / io::kSpecialTokensFile);
  if (token_text(config, kEndToken) != token) {
    set_token(config, kEndToken, token);
    write_object(storage, to / io::kTokenizerConfigFile, config);
    written.add(io::kTokenizerConfigFile);
  }
  if (written.has(io::kSpecialTokensFile) && token_text(map, kEndToken) != token) {
    set_token(map, kEndToken, token);
    write_object(storage, to / io::kSpecialTokensFile, map);
  }
}

Json end_ids_of(const Json& config) {
  const auto value = config.find(kEndIds);
  if (value == config.end() || value->is_null()) return Json::array();
  return value->is_array() ? *value : Json::array({*value});
}

/// Reads config.json, where the ids may be only in text_config.
Json end_ids_of_model(const fs::path& dir) {
  const Json config = read_object(dir / io::kModelConfigFile);
  Json ids = end_ids_of(config);
  if (ids.empty() && config.contains("text_config") && config["text_config"].is_object()) ids = end_ids_of(config["text_config"]);
  return ids;
}

/// Returns the token's id followed by the others.
Json with_first(std::int32_t id, const Json& others) {
  Json ids = Json::array({id});
  for (const Json& other : others)
    if (other != id) ids.push_back(other);
  return ids.size() == 1 ? ids.front() : ids;
}

}  // namespace

std::optional<std::int32_t> padding_id(const fs::path& tokenizer) {
  const std::string token = token_text(read_object(tokenizer / io::kTokenizerConfigFile), kPadToken);
  return token.empty() ? std::nullopt : id_of(tokenizer, token);
}

io::ChatTemplates with_trained_template(io::ChatTemplates templates, const std::string& text) {
  templates.main = text;
  templates.named.erase(kToolTemplate);
  return templates;
}

TokenizerChanges changes_between(const fs::path& tokenizer, const fs::path& trained) {
  TokenizerChanges changes;
  if (auto text = io::read_chat_templates(trained).main; text && text != io::read_chat_templates(tokenizer).main)
    changes.chat_template = std::move(text);
  const std::string end = end_token_of(trained);
  if (end.empty() || end == end_token_of(tokenizer)) return changes;
  changes.end_id = id_of(tokenizer, end);
  if (changes.end_id)
    changes.end_token = end;
  else
    changes.note = fmt::format(
        "'{}' ends answers with '{}', which the tokenizer in '{}' does not have: the tokenizer keeps its own end token",
        trained.string(), end, tokenizer.string());
  return changes;
}

std::vector<fs::path> write_tokenizer(io::Storage& storage, const fs::path& tokenizer, const fs::path& model, const fs::path& to,
                                      const TokenizerChanges& changes) {
  Written written(io::copy_companions(storage, tokenizer, model, to));
  // An earlier save may have left a template file, which would take precedence over the tokenizer's template.
  if (!changes.chat_template && !written.has(io::kChatTemplateFile) && fs::exists(to / io::kChatTemplateFile))
    if (const auto own = io::read_chat_templates(tokenizer).main) {
      io::write_file(storage, to / io::kChatTemplateFile, *own);
      written.add(io::kChatTemplateFile);
    }
  if (changes.chat_template) set_template(storage, tokenizer, to, *changes.chat_template, written);
  if (changes.end_token) set_end_token(storage, to, *changes.end_token, written);
  return written.take();
}

bool write_generation_config(io::Storage& storage, const fs::path& model, const fs::path& to, const TokenizerChanges& changes) {
  const fs::path from = model / io::kGenerationConfigFile;
  const bool there = fs::is_regular_file(from);
  if (!changes.end_id) {
    if (there) io::copy_existing(storage, model, to, std::array{io::kGenerationConfigFile});
    return there;
  }
  Json config = read_object(from);
  const Json others = end_ids_of(config).empty() ? end_ids_of_model(model) : end_ids_of(config);
  const Json ids = with_first(*changes.end_id, others);
  if (there && ids == config.value(kEndIds, Json())) return write_generation_config(storage, model, to, {});
  if (!there && !others.empty() && ids == (others.size() == 1 ? others.front() : others)) return false;
  config[kEndIds] = ids;
  if (!there) {  // once this file exists, transformers does not read these from config.json
    const Json whole = read_object(model / io::kModelConfigFile);
    for (const char* key : {"bos_token_id", "pad_token_id"})
      if (whole.contains(key) && !whole[key].is_null()) config[key] = whole[key];
  }
  write_object(storage, to / io::kGenerationConfigFile, config);
  return true;
}

}  // namespace qft::model

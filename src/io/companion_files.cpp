#include "qft/io/companion_files.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace qft::io {
namespace {

namespace fs = std::filesystem;

/// A word in a file's name, and the kind of the file. The first match counts: preprocessor_config.json belongs to a processor.
struct Word {
  std::string_view word;
  Companion kind;
};
constexpr Word kWords[] = {{"processor", Companion::processor},       {"feature_extractor", Companion::processor},
                           {"audio_tokenizer", Companion::processor}, {"tokenizer", Companion::tokenizer},
                           {"added_tokens", Companion::tokenizer},    {"special_tokens", Companion::tokenizer},
                           {"chat_template", Companion::tokenizer},   {"vocab", Companion::tokenizer},
                           {"merges", Companion::tokenizer},          {"spiece", Companion::tokenizer},
                           {"sentencepiece", Companion::tokenizer},   {"tekken", Companion::tokenizer}};
/// Endings that also need one of kWords, and endings that suffice alone.
constexpr std::string_view kTextEndings[] = {".json", ".jinja", ".txt"};
constexpr std::string_view kVocabularyEndings[] = {".model", ".tiktoken", ".spm", ".bpe"};

/// Configurations that may name Python code.
constexpr const char* kMayNameCode[] = {kModelConfigFile, kTokenizerConfigFile, "processor_config.json",
                                        "preprocessor_config.json"};

bool names_code(const fs::path& dir) {
  return std::ranges::any_of(kMayNameCode, [&](const char* name) {
    if (!fs::is_regular_file(dir / name)) return false;
    const nlohmann::json config = nlohmann::json::parse(read_text_file(dir / name), nullptr, false);
    return config.is_object() && config.contains("auto_map");
  });
}

std::vector<fs::path> files_in(const fs::path& dir) {
  std::vector<fs::path> files;
  std::error_code code;
  for (const auto& item : fs::directory_iterator(dir, code))
    if (item.is_regular_file()) files.push_back(item.path().filename());
  std::ranges::sort(files);
  return files;
}

bool is_jinja(const fs::path& file) {
  return file.extension() == ".jinja";
}

void copy_one(Storage& storage, const fs::path& from, const fs::path& file, const fs::path& to) {
  if (file.has_parent_path()) storage.create_directory(to / file.parent_path());
  copy_file(storage, member_of(from / file.parent_path(), file.filename().string()), to / file);
}

/// Adds the value of tokenizer_config.json's key: a text, or a list of objects with name and template.
void add_listed(const nlohmann::json& value, const fs::path& path, ChatTemplates& found) {
  if (value.is_string()) found.main = value.get<std::string>();
  if (!value.is_array()) return;
  for (const nlohmann::json& entry : value) {
    const bool whole = entry.is_object() && entry.contains("name") && entry["name"].is_string() && entry.contains("template") &&
                       entry["template"].is_string();
    require(whole, "'{}': chat_template holds {}, expected an object with the texts name and template", path.string(),
            entry.dump().substr(0, 200));
    if (entry["name"] == kDefaultTemplate)
      found.main = entry["template"].get<std::string>();
    else
      found.named[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
}

void add_from_json(const fs::path& dir, const char* name, ChatTemplates& found) {
  if (!fs::is_regular_file(dir / name)) return;
  const nlohmann::json config = read_json(member_of(dir, name));
  if (config.is_object() && config.contains("chat_template")) add_listed(config["chat_template"], dir / name, found);
}

}  // namespace

Companion companion_of(std::string_view name) {
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  if (std::ranges::any_of(kVocabularyEndings, ends)) return Companion::tokenizer;
  if (!std::ranges::any_of(kTextEndings, ends)) return Companion::none;
  for (const Word& word : kWords)
    if (name.find(word.word) != name.npos) return word.kind;
  return Companion::none;
}

std::vector<fs::path> companion_files(const fs::path& dir) {
  std::vector<fs::path> files;
  const bool code = names_code(dir);
  for (const fs::path& file : files_in(dir))
    if (companion_of(file.string()) != Companion::none || (code && file.extension() == ".py")) files.push_back(file);
  for (const fs::path& file : files_in(dir / kNamedTemplatesFolder))
    if (is_jinja(file)) files.push_back(fs::path(kNamedTemplatesFolder) / file);
  return files;
}

std::vector<fs::path> copy_companions(Storage& storage, const fs::path& tokenizer, const fs::path& model, const fs::path& to) {
  std::vector<fs::path> copied = companion_files(tokenizer);
  for (const fs::path& file : copied) copy_one(storage, tokenizer, file, to);
  for (const fs::path& file : companion_files(model)) {
    if (companion_of(file.string()) != Companion::processor || std::ranges::find(copied, file) != copied.end()) continue;
    copy_one(storage, model, file, to);
    copied.push_back(file);
  }
  if (std::ranges::any_of(copied, &fs::path::has_parent_path)) storage.sync_directory(to / kNamedTemplatesFolder);
  return copied;
}

ChatTemplates read_chat_templates(const fs::path& dir) {
  ChatTemplates found;
  if (fs::is_regular_file(dir / kChatTemplateFile)) found.main = read_text_file(member_of(dir, kChatTemplateFile));
  for (const fs::path& file : files_in(dir / kNamedTemplatesFolder))
    if (is_jinja(file))
      found.named[file.stem().string()] = read_text_file(member_of(dir / kNamedTemplatesFolder, file.filename().string()));
  if (const auto named = found.named.find(kDefaultTemplate); named != found.named.end()) {
    if (!found.main) found.main = named->second;
    found.named.erase(named);
  }
  if (found.main || !found.named.empty()) return found;
  add_from_json(dir, kTokenizerConfigFile, found);
  if (!found.main && found.named.empty()) add_from_json(dir, kLegacyChatTemplateFile, found);
  return found;
}

}  // namespace qft::io

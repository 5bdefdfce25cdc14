// The files of a model's folder beside weights and config.json: what saving a tokenizer, a processor or its parts writes.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kSpecialTokensFile = "special_tokens_map.json";
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
/// Of processors, as transformers wrote it before: {"chat_template": "..."}.
inline constexpr const char* kOldChatTemplateFile = "chat_template.json";
/// Templates by name, NAME.jinja each.
inline constexpr const char* kNamedTemplatesFolder = "additional_chat_templates";
inline constexpr const char* kDefaultTemplate = "default";

enum class Companion : std::uint8_t {
  none,
  tokenizer,  ///< with chat templates, and the code that auto_map names
  processor   ///< of images, videos and sounds, and what binds them to the tokenizer
};
/// What a file is by its name. The rule: a word that says whose it is (tokenizer, vocab, processor, chat_template, ...), with the
/// ending of a text or of a vocabulary; so that what libraries will add under such names goes along too.
Companion companion_of(std::string_view name);

/// The companions in `dir`, with those of its folder additional_chat_templates, as paths relative to it, sorted. Python files are
/// among them where a configuration has an auto_map.
std::vector<std::filesystem::path> companion_files(const std::filesystem::path& dir);

/// Copies to `to` the companions of `tokenizer`, and the processor's of `model` that `tokenizer` lacks, each synced. Returns
/// their paths relative to `to`. Files that `to` has beside stay.
std::vector<std::filesystem::path> copy_companions(Storage& storage, const std::filesystem::path& tokenizer,
                                                   const std::filesystem::path& model, const std::filesystem::path& to);

/// The chat templates of a folder, found as transformers finds them.
struct ChatTemplates {
  std::optional<std::string> main;           ///< the one named default, or the only one
  std::map<std::string, std::string> named;  ///< the others
};
/// chat_template.jinja with additional_chat_templates; without these tokenizer_config.json, which has a text or a list of named
/// ones; without that chat_template.json. Throws Error where one of these is broken.
ChatTemplates read_chat_templates(const std::filesystem::path& dir);

}  // namespace qft::io

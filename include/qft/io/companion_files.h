// The files of a model folder other than weights and config.json: written when a tokenizer, a processor or its parts are saved.
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
/// Processors' older form, as transformers wrote it: {"chat_template": "..."}.
inline constexpr const char* kLegacyChatTemplateFile = "chat_template.json";
/// Holds one file NAME.jinja per named template.
inline constexpr const char* kNamedTemplatesFolder = "additional_chat_templates";
inline constexpr const char* kDefaultTemplate = "default";

enum class Companion : std::uint8_t {
  none,
  tokenizer,  ///< includes chat templates, and the code that auto_map names
  processor   ///< handles images, videos and sounds, and binds them to the tokenizer
};
/// Returns the kind of a file by its name: a word for its owner (tokenizer, vocab, processor, chat_template, ...) plus the ending
/// of a text or a vocabulary. By this rule, files that libraries will add under such names are included too.
Companion companion_of(std::string_view name);

/// Returns the companion files in `dir` and in its folder additional_chat_templates, as paths relative to `dir`, sorted. Python
/// files are included if a configuration has an auto_map.
std::vector<std::filesystem::path> companion_files(const std::filesystem::path& dir);

/// Copies the companion files of `tokenizer` to `to`, and those processor files of `model` that `tokenizer` lacks. Syncs each
/// file. Returns their paths relative to `to`. Other files in `to` stay.
std::vector<std::filesystem::path> copy_companions(Storage& storage, const std::filesystem::path& tokenizer,
                                                   const std::filesystem::path& model, const std::filesystem::path& to);

/// A folder's chat templates, found in the same way as transformers does.
struct ChatTemplates {
  std::optional<std::string> main;           ///< the template named default, or the only one
  std::map<std::string, std::string> named;  ///< the other templates
};
/// Reads chat_template.jinja and additional_chat_templates; without these tokenizer_config.json, which holds a text or a list of
/// named templates; without that chat_template.json. Throws Error if one of these files is broken.
ChatTemplates read_chat_templates(const std::filesystem::path& dir);

}  // namespace qft::io

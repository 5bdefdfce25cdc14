// Changes that training makes to a tokenizer's files: the chat template used in training, and the token that ends answers.
#pragma once

#include "qft/io/companion_files.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::model {

struct TokenizerChanges {
  std::optional<std::string> chat_template = {};  ///< Jinja text; absent: keeps the base's template
  std::optional<std::string> end_token = {};      ///< the token's text; absent: keeps the base's end token
  std::optional<std::int32_t> end_id = {};        ///< id of end_token
  std::string note = {};                          ///< a warning about a change that could not be taken over; empty: none

  bool any() const { return chat_template || end_token; }
};

/// Returns the id of the padding token that tokenizer_config.json names; nothing if it names none.
std::optional<std::int32_t> padding_id(const std::filesystem::path& tokenizer);

/// Returns the templates with `text` as the trained template. Other named templates stay, except tool_use, which transformers
/// would prefer whenever a conversation has tools.
io::ChatTemplates with_trained_template(io::ChatTemplates templates, const std::string& text);

/// Returns the differences of the tokenizer's files in `trained` (an adapter's folder or a checkpoint) from `tokenizer`: template
/// and end token. Empty if `trained` has no such files. Leaves out an end token that `tokenizer` does not have, and adds a note.
TokenizerChanges changes_between(const std::filesystem::path& tokenizer, const std::filesystem::path& trained);

/// Writes the companion files (io/companion_files.h) of `tokenizer` and `model` into `to` with the changes: the template as
/// chat_template.jinja and in every other place that has one, and the end token as eos_token. Other named templates are treated
/// as in with_trained_template(). Returns the paths relative to `to`.
std::vector<std::filesystem::path> write_tokenizer(io::Storage& storage, const std::filesystem::path& tokenizer,
                                                   const std::filesystem::path& model, const std::filesystem::path& to,
                                                   const TokenizerChanges& changes);

/// Writes `model`'s generation_config.json into `to`, with the trained end token first in eos_token_id, followed by the model's
/// other end tokens. If `model` has no such file, writes a new one only if the end token differs from config.json's. Returns true
/// if a file was written.
bool write_generation_config(io::Storage& storage, const std::filesystem::path& model, const std::filesystem::path& to,
                             const TokenizerChanges& changes);

}  // namespace qft::model

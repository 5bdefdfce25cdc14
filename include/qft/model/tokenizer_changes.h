// What training changes of a tokenizer's files: the chat template that it learned by, and the token that ends its answers.
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
  std::optional<std::string> chat_template = {};  ///< Jinja; absent: the base's stays
  std::optional<std::string> end_token = {};      ///< its text; absent: the base's stays
  std::optional<std::int32_t> end_id = {};        ///< with end_token
  std::string note = {};                          ///< what could not be taken over, for a warning; empty: nothing

  bool any() const { return chat_template || end_token; }
};

/// The templates where `text` is the one that was trained: other named ones stay, but tool_use, which transformers would take in
/// its place wherever tools are given.
io::ChatTemplates changed(io::ChatTemplates templates, const std::string& text);

/// What the tokenizer's files of `trained` (an adapter's folder, a checkpoint's) say otherwise than those of `tokenizer`:
/// template and end token. Nothing where `trained` has no such files. An end token that `tokenizer` does not have is left out,
/// with a note.
TokenizerChanges changes_between(const std::filesystem::path& tokenizer, const std::filesystem::path& trained);

/// Writes into `to` the companions (io/companion_files.h) of `tokenizer` and `model` with the changes: the template as
/// chat_template.jinja, and wherever else the files have one; the end token as eos_token. Other named templates as
/// changed() has them. Returns the paths relative to `to`.
std::vector<std::filesystem::path> write_tokenizer(io::Storage& storage, const std::filesystem::path& tokenizer,
                                                   const std::filesystem::path& model, const std::filesystem::path& to,
                                                   const TokenizerChanges& changes);

/// generation_config.json of `model` into `to`, with the trained end token first in eos_token_id and the model's others behind
/// it; where `model` has none, and the end token is another than config.json's, a new one. Returns whether there is one.
bool write_generation_config(io::Storage& storage, const std::filesystem::path& model, const std::filesystem::path& to,
                             const TokenizerChanges& changes);

}  // namespace qft::model

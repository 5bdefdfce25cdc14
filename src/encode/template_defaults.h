// The template of stage embedding for a run without the key template. Private to encode.
#pragma once

#include <filesystem>
#include <string_view>

namespace qft::encode {

/// Returns true if a folder's vectors are the state of `end` behind a plain text: its tokenizer.json puts nothing but this token
/// around a text, or puts nothing, and modules.json of sentence-transformers does not use the chat template. Throws Error if one
/// of these files is damaged.
bool embeds_plain_texts(const std::filesystem::path& dir, std::string_view end);

}  // namespace qft::encode

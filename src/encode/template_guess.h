// The template of a model that the run file does not name.
#pragma once

#include <filesystem>
#include <string>

namespace qft::encode {

/// The template that fits the chat template in a tokenizer's folder (tokenizer_config.json or chat_template.jinja) beyond doubt; ""
/// where none does.
std::string guess_template(const std::filesystem::path& tokenizer_dir);

}  // namespace qft::encode

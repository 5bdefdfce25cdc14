// Datasets that are named by their file or folder instead of an entry in dataset_info.json.
#pragma once

#include "qft/encode/dataset_info.h"

#include <optional>
#include <string>

namespace qft::encode {

/// What lies at the path `name`: a .json, .jsonl or .txt file, or a folder of them (of the training files where it has others).
/// The format is told from the first records: messages or conversations, pairs of turns, instruction and output, a question
/// and an answer, text. nullopt where there is no such path. Throws ConfigError with the file and its columns where no format
/// fits.
std::optional<DatasetSpec> dataset_at(const std::string& name);

/// Throws ConfigError starting with `where`: `file` is of a type that is not read, or only points to one.
[[noreturn]] void refuse_type(const std::string& where, const std::filesystem::path& file);

}  // namespace qft::encode

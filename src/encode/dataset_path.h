// Datasets named by file or folder instead of an entry in dataset_info.json.
#pragma once

#include "qft/config/stages.h"
#include "qft/encode/dataset_info.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

using Words = std::initializer_list<std::string_view>;
inline bool is_one_of(std::string_view word, Words words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Describes dataset `name` at `path`: a file of a type in kDataTypes, or a folder with such files (only the training files if
/// it has others too). Guesses the format from the first records: messages or conversations, pairs of turns, instruction and
/// output, a question and an answer, text. Reads two answers (chosen and rejected, or rejected_response beside messages) for
/// a `stage` that has pairs and for null; reads marks (kto_tag, label) for stage kto. Returns nullopt if the path does not
/// exist. Throws ConfigError with the file and its columns if no format fits.
std::optional<DatasetSpec> dataset_at(const std::filesystem::path& path, const std::string& name, const config::Stage* stage);
/// Does the same for known files, at least one. Logs the first file unless `name` already names it (`name_says_file`).
DatasetSpec dataset_of(std::vector<std::filesystem::path> files, const std::string& name, const config::Stage* stage,
                       bool name_says_file = false);

/// Returns the data files of a folder: all files of the first type in kDataTypes that it contains, or only the training files
/// if others are marked as such. Throws ConfigError if there are none.
std::vector<std::filesystem::path> data_files_in(const std::filesystem::path& folder);
/// Returns the words in a file's name and in its folders below `folder`.
std::set<std::string, std::less<>> name_words(const std::filesystem::path& file, const std::filesystem::path& folder);

/// Throws ConfigError starting with `where`: the type of `file` is not supported, or the file is only a pointer to the data.
[[noreturn]] void refuse_type(const std::string& where, const std::filesystem::path& file);

}  // namespace qft::encode

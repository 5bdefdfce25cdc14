// Datasets that are named by their file or folder instead of an entry in dataset_info.json.
#pragma once

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

/// What lies at `path`, for the dataset `name`: a file of kDataTypes, or a folder of them (of the training files where it has
/// others). The format is told from the first records: messages or conversations, pairs of turns, instruction and output, a
/// question and an answer, text. Two answers (chosen and rejected, or rejected_response beside messages) are read for stages dpo
/// and rm, and where `stage` is empty; marks (kto_tag, label) for stage kto. nullopt where there is no such path. Throws
/// ConfigError with the file and its columns where no format fits.
std::optional<DatasetSpec> dataset_at(const std::filesystem::path& path, const std::string& name, std::string_view stage);
/// The same of files that are known, of which there is one at least; the log names the first one if `name` does not say it.
DatasetSpec dataset_of(std::vector<std::filesystem::path> files, const std::string& name, std::string_view stage,
                       bool name_says_file = false);

/// The data files of a folder: of the first of kDataTypes that it has, the training files where others are marked as such too.
/// Throws ConfigError where there are none.
std::vector<std::filesystem::path> data_files_in(const std::filesystem::path& folder);
/// The words of a file's name, and of its folders below `folder`.
std::set<std::string, std::less<>> name_words(const std::filesystem::path& file, const std::filesystem::path& folder);

/// Throws ConfigError starting with `where`: `file` is of a type that is not read, or only points to one.
[[noreturn]] void refuse_type(const std::string& where, const std::filesystem::path& file);

}  // namespace qft::encode

// Chooses the data files of a folder.
#include "qft/core/data_types.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/file_kind.h"
#include "qft/core/log.h"
#include "qft/io/file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "dataset_path.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

bool is_described(const fs::path& file) {  // files that accompany the data in a hub repository
  return is_one_of(file.filename().string(), {"dataset_info.json", "dataset_infos.json", "configuration.json"}) ||
         is_one_of(file.stem().string(), {"README", "LICENSE", "requirements"});
}

}  // namespace

std::set<std::string, std::less<>> name_words(const fs::path& file, const fs::path& folder) {
  std::set<std::string, std::less<>> words;
  std::string word;
  for (const char c : file.lexically_relative(folder).string() + ".") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  return words;
}

std::vector<fs::path> data_files_in(const fs::path& folder) {
  std::array<std::vector<fs::path>, kDataTypes.size()> by_type;
  std::vector<fs::path> train, unmarked;
  std::string foreign;
  std::error_code code, unreadable;
  if (fs::directory_iterator(folder, code); code)
    fail_config("dataset: cannot read the folder {}: {}", folder.string(), code.message());
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_directory(unreadable) && (fs::directory_iterator(entry->path(), unreadable), unreadable))
      log::warn("dataset: the folder {} is skipped: {}", entry->path().string(), unreadable.message());
    if (!entry->is_regular_file(unreadable) || is_described(entry->path())) continue;
    const std::string type = file_ending(entry->path());
    if (const auto known = std::ranges::find(kDataTypes, type); known != kDataTypes.end())
      by_type[static_cast<std::size_t>(known - kDataTypes.begin())].push_back(entry->path());
    if (is_one_of(type, {".tsv", ".gz", ".zst", ".zip"})) foreign = entry->path().string();
  }
  if (code) fail_config("dataset: cannot read all of the folder {}: {}", folder.string(), code.message());
  const auto first = std::ranges::find_if(by_type, [](const auto& files) { return !files.empty(); });
  if (first == by_type.end())
    fail_config("dataset: the folder {} has no {} file{}", folder.string(), fmt::join(kDataTypes, ", "),
                foreign.empty() ? "" : fmt::format(": convert {} to JSON lines first", foreign));
  std::vector<fs::path>& found = *first;
  std::sort(found.begin(), found.end());
  for (const fs::path& file : found) {
    const auto words = name_words(file, folder);
    const auto has = [&](Words marks) {
      return std::any_of(marks.begin(), marks.end(), [&](auto m) { return words.contains(m); });
    };
    if (has({"train", "training"})) {
      train.push_back(file);
    } else if (!has({"test", "testing", "valid", "validation", "val", "dev", "eval", "evaluation"})) {
      unmarked.push_back(file);
    }
  }
  if (!train.empty()) return train;
  return unmarked.empty() ? found : unmarked;
}

void refuse_type(const std::string& where, const fs::path& file) {
  const std::string pointer = describe_pointer(io::File::open_read(file).lead(), file);
  if (!pointer.empty()) fail_config("{}: {}", where, pointer);
  fail_config("{}: {} is not a file type that qft reads ({}); convert it to JSON lines first", where, file.string(),
              fmt::join(kDataTypes, ", "));
}

}  // namespace qft::encode

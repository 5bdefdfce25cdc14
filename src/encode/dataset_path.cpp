#include "dataset_path.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/io/file.h"

#include <array>
#include <cctype>
#include <utility>

#include "dataset_form.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

bool is_described(const fs::path& file) {  // files that accompany the data in a hub repository
  return is_one_of(file.filename().string(), {"dataset_info.json", "dataset_infos.json", "configuration.json"}) ||
         is_one_of(file.stem().string(), {"README", "LICENSE", "requirements"});
}

}  // namespace

namespace fs = std::filesystem;

std::optional<DatasetSpec> dataset_at(const fs::path& path, const std::string& name, const config::Stage* stage) {
  std::error_code code;
  const bool folder = fs::is_directory(path, code);
  if (!folder && !fs::is_regular_file(path, code)) return std::nullopt;
  return dataset_of(folder ? data_files_in(path) : std::vector<fs::path>{path}, name, stage, !folder);
}

DatasetSpec dataset_of(std::vector<fs::path> files, const std::string& name, const config::Stage* stage, bool name_says_file) {
  DatasetSpec spec;
  spec.name = name;
  spec.columns_from = spec.tags_from = "the first records";
  spec.files = std::move(files);
  const std::string type = file_ending(spec.files.front());
  if (!is_data_file(spec.files.front())) refuse_type("dataset", spec.files.front());
  if (type == ".txt") {
    spec.columns = {};
    spec.columns.prompt = "text";
    spec.columns.query = spec.columns.response = spec.columns.messages = "";
    return spec;
  }
  const FirstRecords seen = read_first_records(spec.files);
  const std::string where = fmt::format("dataset: {}", spec.files.front().string());
  if (seen.records == 0 && !seen.fault.empty()) fail("{}", seen.fault);
  if (seen.records == 0) fail_config("{} holds no record", where);
  for (const auto& [word, place] : seen.placeholders)
    fail_config("{}: a text has the placeholder {}: replace it by a name, for instance with sed -i 's/{}/Bot/g'", place, word,
                word);
  decide_form(seen, where, stage, spec);
  spec.by_first_records = true;
  spec.later = columns_that_matter(seen, stage, spec);
  const std::string first = spec.files.front().string();
  const std::int64_t others = std::ssize(spec.files) - 1;
  const std::string from = others == 0 ? first : fmt::format("{} and {}", first, count_noun(others, "more file"));
  log::info("dataset {}: {}reads {}", name, name_says_file ? "" : from + "; ", columns_read(spec, seen));
  if (spec.passages)
    if (const std::vector<std::string> unread = unread_texts(seen, spec); !unread.empty())
      log::warn(
          "dataset {}: the texts in the columns {} are not read; if they are negatives, name them as negative in "
          "dataset_info.json",
          name, fmt::join(unread, ", "));
  if (const std::string& weight = spec.columns.weight; seen.has(weight))
    log::warn("dataset {}: the column '{}' is used as the weight of each record's labels; rename it if it means something else",
              name, weight);
  return spec;
}

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

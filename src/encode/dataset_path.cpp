#include "dataset_path.h"

#include "qft/core/data_types.h"
#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/log.h"
#include "qft/core/units.h"

#include <utility>

#include "dataset_form.h"

namespace qft::encode {

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
  if (const std::string& weight = spec.columns.weight; seen.has(weight))
    log::warn("dataset {}: the column '{}' is used as the weight of each record's labels; rename it if it means something else",
              name, weight);
  return spec;
}

}  // namespace qft::encode

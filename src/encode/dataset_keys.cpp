#include "qft/encode/dataset_keys.h"

#include "qft/core/error.h"
#include "qft/encode/record_converter.h"

#include <set>
#include <string>
#include <vector>

#include "csv.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

/// Tracks the wanted names not yet seen, and the seen names in order.
class Search {
 public:
  explicit Search(std::vector<std::string> wanted) : missing_(std::move(wanted)) {}

  bool is_done() const { return missing_.empty(); }
  void note(std::vector<std::string> names) {
    for (std::string& name : names) {
      std::erase(missing_, name);
      if (known_.insert(name).second) seen_.push_back(std::move(name));
    }
  }
  // Unreadable records are reported with their lines when they are encoded.
  bool has_failed() const { return !missing_.empty() && !seen_.empty(); }
  const std::string& first_missing() const { return missing_.front(); }
  std::string seen() const { return fmt::format("'{}'", fmt::join(seen_, "', '")); }

 private:
  std::vector<std::string> missing_, seen_;
  std::set<std::string> known_;
};

// "data/a.jsonl", "data/a.jsonl and 2 more files".
std::string files_of(const DatasetSpec& spec) {
  const std::size_t more = spec.files.size() - 1;
  return spec.files.front().string() + (more == 0 ? "" : fmt::format(" and {} more files", more));
}

std::vector<std::string> wanted_keys(const DatasetSpec& spec) {
  if (spec.formatting == Formatting::alpaca) return {};
  if (spec.formatting == Formatting::turns) return {spec.tags.user, spec.tags.assistant};
  return {spec.tags.role, spec.tags.content};
}

}  // namespace

void require_keys(const DatasetSpec& spec, const RecordSource& source) {
  Search columns(spec.named_columns()), keys(wanted_keys(spec));
  RecordConverter converter(spec, source.is_text());
  RecordCursor cursor(source);
  for (std::int64_t i = 0; i < source.size() && !(columns.is_done() && keys.is_done()); ++i) {
    const RecordText record = cursor.at(i);
    try {
      columns.note(converter.columns(record));
      if (!keys.is_done()) keys.note(converter.message_keys(record));
    } catch (const Error&) {
      continue;
    }
  }
  if (columns.has_failed())
    fail_config(
        "dataset '{}': no record of {} has the column '{}' (from {}). The columns are {}; name the right ones under columns in "
        "dataset_info.json{}",
        spec.name, files_of(spec), columns.first_missing(), spec.columns_from, columns.seen(),
        separator_advice(spec.files.front()));
  if (keys.has_failed())
    fail_config(
        "dataset '{}': no message in {} has the key '{}' ({}, from {}). Messages have {}; name the right ones under tags in "
        "dataset_info.json",
        spec.name, files_of(spec), keys.first_missing(), keys.first_missing() == spec.tags.role ? "role_tag" : "content_tag",
        spec.tags_from, keys.seen());
}

}  // namespace qft::encode

#include "csv.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"
#include "qft/core/json_text.h"
#include "qft/io/file.h"

#include <algorithm>
#include <array>

namespace qft::encode {
namespace {

// Appends the field that opens at `at` and returns the offset after its closing quote.
std::size_t read_quoted(std::string_view bytes, std::size_t at, std::string& field) {
  for (++at;;) {
    const std::size_t quote = bytes.find('"', at);
    require(quote != bytes.npos, "a field opens with a quote that is never closed");
    field.append(bytes, at, quote - at);
    at = quote + 1;
    if (at == bytes.size() || bytes[at] != '"') return at;
    field += '"';
    ++at;
  }
}

}  // namespace

bool read_csv_row(std::string_view bytes, std::size_t& at, std::vector<std::string>& fields) {
  fields.clear();
  for (bool more = true; more;) {
    std::string& field = fields.emplace_back();
    const bool quoted = at < bytes.size() && bytes[at] == '"';
    if (quoted) at = read_quoted(bytes, at, field);
    const std::size_t end = std::min(bytes.find_first_of(",\n", at), bytes.size());
    std::string_view rest = bytes.substr(at, end - at);
    more = end < bytes.size() && bytes[end] == ',';
    if (!more && rest.ends_with('\r')) rest.remove_suffix(1);
    require(!quoted || rest.empty(), "a field has text after its closing quote: '{}'", rest.substr(0, 20));
    field += rest;
    at = end < bytes.size() ? end + 1 : end;
  }
  if (fields.size() > 1 || !fields.front().empty()) return true;
  fields.clear();
  return false;
}

void csv_record(const std::vector<std::string>& columns, const std::vector<std::string>& fields, std::string& record) {
  require(fields.size() == columns.size(),
          "the row has {} fields, the first line names {} columns: put fields with commas, quotes "
          "or several lines in quotes",
          fields.size(), columns.size());
  record.clear();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    record += i == 0 ? "{" : ", ";
    append_json_text(record, columns[i]);
    record += ": ";
    if (fields[i].empty())
      record += "null";
    else
      append_json_text(record, fields[i]);
  }
  record += "}";
}

std::string separator_advice(std::string_view bytes) {
  struct Separator {
    char letter;
    std::string_view name, in_python;
  };
  constexpr std::array<Separator, 4> kSeparators = {
      {{',', "commas", ","}, {';', "';'", ";"}, {'\t', "tabs", "\\t"}, {'|', "'|'", "|"}}};
  std::array<std::size_t, kSeparators.size()> found{};
  bool quoted = false;
  for (const char c : bytes) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '\n') break;
    for (std::size_t i = 0; i < found.size(); ++i) found[i] += c == kSeparators[i].letter;
  }
  const std::size_t likely = static_cast<std::size_t>(std::ranges::max_element(found) - found.begin());
  if (likely == 0 || found[likely] == 0) return {};
  return fmt::format(
      ": its first line is separated by {}, not by commas; convert it in Python with pandas.read_csv(FILE, "
      "sep=\"{}\").to_csv(FILE, index=False)",
      kSeparators[likely].name, kSeparators[likely].in_python);
}

std::string separator_advice(const std::filesystem::path& file) {
  if (file_ending(file) != ".csv") return {};
  const io::File handle = io::File::open_read(file);
  const std::size_t size = std::min<std::size_t>(handle.size(), 1 << 16);
  if (size == 0) return {};
  const io::Mapping mapping(handle, 0, size);
  return separator_advice(std::string_view(reinterpret_cast<const char*>(mapping.data()), size));
}

}  // namespace qft::encode

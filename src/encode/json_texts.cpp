#include "json_texts.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/json_text.h"
#include "qft/core/python_json.h"

#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kBlank = " \t\r\n";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlank) == text.npos;
}

bool is_message(const dom::element& value, std::string_view role, std::string_view content) {
  dom::object object;
  dom::element member;
  return value.get(object) == simdjson::SUCCESS && object.at_key(role).get(member) == simdjson::SUCCESS &&
         object.at_key(content).get(member) == simdjson::SUCCESS;
}

// Checks the JSON text in a column that never holds a plain text.
std::string list_in_text(std::string_view text, std::string_view column) {
  if (is_blank(text)) return "null";
  if (parse_json_text(text)) return std::string(text);
  const std::string found = fmt::format("the text \"{}\"", shortened(text));
  if (const std::size_t begin = text.find_first_not_of(kBlank); text[begin] != '[' && text[begin] != '{')
    fail("{}: expected a list, got {}, which is not JSON: write a list of objects, or its JSON", column, found);
  try {
    parse_python_json(text, column);
  } catch (const Error& e) {
    fail("{}, in {}", e.what(), found);
  }
  fail("{}: expected a list, got {}, which is not JSON", column, found);
}

// The JSON texts of one record that replace its columns.
class JsonTexts {
 public:
  JsonTexts(const dom::object& record, const DatasetSpec& spec) : record_(record) {
    const ColumnNames& c = spec.columns;
    if (spec.formatting == Formatting::alpaca) {
      add(c.history);
      return;
    }
    add(c.messages);
    if (!spec.ranking) return;
    for (const std::string* column : {&c.chosen, &c.rejected})
      if (const auto text = text_in(*column); text && holds_messages(*text, spec.tags.role, spec.tags.content)) add(*column);
  }

  bool empty() const { return json_.empty(); }
  const std::string* of(std::string_view column) const {
    for (const auto& [name, json] : json_)
      if (name == column) return &json;
    return nullptr;
  }

 private:
  std::optional<std::string_view> text_in(const std::string& column) const {
    const auto value = find(record_, column);
    return value && is_text(*value) ? std::optional(std::string_view(*value)) : std::nullopt;
  }
  void add(const std::string& column) {
    if (const auto text = text_in(column); text && of(column) == nullptr) json_.emplace_back(column, list_in_text(*text, column));
  }

  const dom::object& record_;
  std::vector<std::pair<std::string, std::string>> json_;
};

}  // namespace

std::optional<dom::element> parse_json_text(std::string_view text) {
  thread_local dom::parser parser;
  dom::element root;
  if (parser.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS) return root;
  const std::string quoted = quote_python_numbers(text);
  if (quoted != text && parser.parse(quoted).get(root) == simdjson::SUCCESS) return root;
  return std::nullopt;
}

bool holds_messages(std::string_view text, std::string_view role, std::string_view content) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos || (text[begin] != '[' && text[begin] != '{')) return false;
  const auto value = parse_json_text(text);
  if (!value) return false;
  dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return is_message(*value, role, content);
  for (const dom::element item : list)
    if (!is_message(item, role, content)) return false;
  return list.size() > 0;
}

std::string without_json_texts(const dom::object& record, const DatasetSpec& spec) {
  const JsonTexts texts(record, spec);
  if (spec.formatting == Formatting::alpaca)
    if (const auto history = find(record, spec.columns.history); history && !history->is_array() && !is_text(*history))
      fail("{}: expected a list of pairs of a question and an answer, got {}: write [[\"question\", \"answer\"], ...]",
           spec.columns.history, describe(*history));
  if (texts.empty()) return {};
  std::string json = "{";
  for (const auto& field : record) {
    if (json.size() > 1) json += ", ";
    append_json_text(json, field.key);
    json += ": ";
    const std::string* other = texts.of(field.key);
    json += other == nullptr ? simdjson::minify(field.value) : *other;
  }
  return json + "}";
}

}  // namespace qft::encode

// Checks all later records against the decision by the first ones.
#include "qft/core/error.h"

#include <algorithm>

#include "dataset_form.h"
#include "dataset_words.h"
#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

constexpr std::string_view kRemedy =
    "move a record with this column to the front, rename the column, or describe the file in dataset_info.json";

// Returns `seen` as if one record had a value of `kind` in `column`.
FirstRecords with_column(FirstRecords seen, std::string_view column, ValueKind kind) {
  const std::string name(column);
  const std::string place = "a record";
  if (seen.keys.emplace(name, place).second) seen.order.push_back(name);
  seen.columns.emplace(name, place);
  if (kind == flag_value || kind == binary_number) seen.flags.emplace(name, place);
  if (kind == number_value || kind == binary_number) seen.numbers.emplace(name, place);
  if (kind == list_value) {
    FirstMessages messages =
        seen.messages.empty() ? FirstMessages{{{"role", place}, {"content", place}}, {}, true} : seen.messages.begin()->second;
    seen.messages.emplace(name, std::move(messages));
  }
  return seen;
}

// Describes how the records would be read then; "" if the same as `spec`.
std::string describe_changed_form(const FirstRecords& seen, const config::Stage* stage, const DatasetSpec& spec) {
  DatasetSpec other = spec;
  try {
    decide_form(seen, "the file", stage, other);
  } catch (const ConfigError& e) {
    return e.what();
  }
  if (other.columns == spec.columns && other.formatting == spec.formatting && other.ranking == spec.ranking) return {};
  const std::string read = columns_read(other, seen);
  return "the columns read would be " + read.substr(0, read.find(';'));
}

// Returns the column that is read for the same meaning as `name`; "" if none is.
std::string column_read_instead(std::string_view name, const ColumnNames& columns) {
  for (const SameColumns& same : kSameColumns) {
    const std::string& read = columns.*same.read;
    if (is_one_of(name, same.words) && is_one_of(read, same.words)) return read;
  }
  return {};
}

bool is_read(const std::string& name, const ColumnNames& c) {
  const std::string* all[] = {&c.prompt, &c.query,  &c.response, &c.history, &c.messages, &c.system,
                              &c.tools,  &c.chosen, &c.rejected, &c.kto_tag, &c.label,    &c.weight};
  return std::ranges::any_of(all, [&](const std::string* column) { return *column == name; }) || c.positive == name ||
         std::ranges::find(c.negatives, name) != c.negatives.end();
}

// The members of a message that determine its form.
struct MessageKeys {
  std::string_view role;  // data() is null if missing
  bool content = false;

  MessageKeys(const dom::object& message, const MessageTags& tags) {
    for (const auto& [key, value] : message) {
      if (key == tags.role) {
        if (value.get(role) != simdjson::SUCCESS && !value.is_null()) role = "(no text)";
      } else if (key == tags.content) {
        content = !is_empty(value);
      }
    }
  }
};

bool has_value(const dom::object& message, std::string_view key) {
  dom::element value;
  return message.at_key(key).get(value) == simdjson::SUCCESS && !is_empty(value);
}

// Whether the message has a key of a form other than `form`.
bool has_another_form(const dom::object& message, const std::pair<std::string_view, std::string_view>& form) {
  for (const auto& other : kMessageForms)
    if (other != form && (has_value(message, other.first) || has_value(message, other.second))) return true;
  return form != kTurnForm && has_value(message, kTurnForm.first) && has_value(message, kTurnForm.second);
}

[[noreturn]] void refuse_form(const dom::object& message, std::size_t number, const std::string& column, std::string_view first,
                              std::string_view second) {
  fail("{}: message {} has the keys {}; the first records have {} and {}: write one of them everywhere", column, number,
       keys_of(message), first, second);
}

void check_message(const dom::object& message, std::size_t number, const std::string& column, const DatasetSpec& spec) {
  const MessageTags& tags = spec.tags;
  if (spec.formatting == Formatting::turns) {
    if (!has_value(message, tags.user) && !has_value(message, tags.assistant) && has_another_form(message, kTurnForm))
      refuse_form(message, number, column, tags.user, tags.assistant);
    return;
  }
  const MessageKeys keys(message, tags);
  if ((keys.role.data() == nullptr || !keys.content) && has_another_form(message, {tags.role, tags.content}))
    refuse_form(message, number, column, tags.role, tags.content);
}

void check_messages(const dom::object& record, const std::string& column, const DatasetSpec& spec) {
  const auto value = find(record, column);
  if (!value) return;
  dom::array list;
  dom::object message;
  if (value->get(message) == simdjson::SUCCESS) return check_message(message, 1, column, spec);
  if (value->get(list) != simdjson::SUCCESS) return;
  std::size_t number = 0;
  for (const dom::element item : list)
    if (++number; item.get(message) == simdjson::SUCCESS) check_message(message, number, column, spec);
}

}  // namespace

std::vector<LaterColumn> columns_that_matter(const FirstRecords& seen, const config::Stage* stage, const DatasetSpec& spec) {
  std::vector<LaterColumn> later;
  for (const Words& words : kAllWords)
    for (const std::string_view word : words) {
      const bool is_known = seen.has(word) || std::ranges::any_of(later, [&](const auto& column) { return column.name == word; });
      if (is_known) continue;
      LaterColumn column{std::string(word), 0, {}, {}};
      for (const ValueKind kind : {text_value, flag_value, number_value, binary_number, list_value}) {
        std::string reason = describe_changed_form(with_column(seen, word, kind), stage, spec);
        if (reason.empty()) continue;
        column.kinds |= kind;
        column.reason = std::move(reason);
      }
      if (!is_read(column.name, spec.columns)) column.instead_of = column_read_instead(word, spec.columns);
      if (column.kinds != 0 || !column.instead_of.empty()) later.push_back(std::move(column));
    }
  std::ranges::sort(later, {}, &LaterColumn::name);
  return later;
}

void require_as_decided(const dom::object& record, const DatasetSpec& spec) {
  if (!spec.by_first_records) return;
  for (const auto& field : record) {
    const auto refuse = [&](const std::string& reason) {
      fail(
          "{}: none of the first {} records has a value in this column, and they decide how the file is read. With a value: {}; "
          "{}",
          field.key, kFirstRecords, reason, kRemedy);
    };
    const auto column =
        std::ranges::lower_bound(spec.later, field.key, {}, [](const LaterColumn& c) { return std::string_view(c.name); });
    if (column == spec.later.end() || column->name != field.key) {
      if (!spec.passages || is_empty(field.value)) continue;
      if (const std::string reason = describe_later_passage(field.key, kind_of(field.value), spec); !reason.empty())
        refuse(reason);
      continue;
    }
    if (is_empty(field.value)) continue;
    const std::string& read = column->instead_of;
    const bool replaces = !read.empty() && !find(record, read);
    if ((column->kinds & kind_of(field.value)) != 0 && !(spec.passages && replaces)) refuse(column->reason);
    if (replaces)
      fail(
          "{}: the first {} records use '{}' instead, which this record lacks; rename the column, or describe the file in "
          "dataset_info.json",
          field.key, kFirstRecords, read);
  }
  if (spec.formatting == Formatting::alpaca) return;
  check_messages(record, spec.columns.messages, spec);
  if (!spec.ranking) return;
  if (spec.columns.chosen != spec.columns.messages) check_messages(record, spec.columns.chosen, spec);
  check_messages(record, spec.columns.rejected, spec);
}

}  // namespace qft::encode

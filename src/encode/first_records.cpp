#include "first_records.h"

#include "qft/core/error.h"
#include "qft/encode/record_converter.h"
#include "qft/encode/record_source.h"

#include <algorithm>

#include "dataset_words.h"
#include "json_texts.h"
#include "record_value.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kFirstFiles = 64;

// Whether this column may hold messages as well as a text.
bool may_hold_messages(std::string_view column) {
  return is_one_of(column, kRejectedWords) || column == "chosen" || column == "prompt";
}

// Returns the messages if the text is their JSON, else `value`.
dom::element messages_in_text(std::string_view column, dom::element value) {
  if (is_one_of(column, kMessagesWords)) {  // never a text itself; JSON texts may be nested
    for (std::string text; is_text(value);) {
      text = std::string_view(value);
      const auto inner = parse_json_text(text);
      if (!inner) break;
      value = *inner;
    }
  } else if (may_hold_messages(column) && is_text(value)) {
    const std::string_view text = value;
    for (const auto& [role, content] : kMessageForms)
      if (holds_messages(text, role, content)) return parse_json_text(text).value_or(value);
  }
  return value;
}

// Notes a list of messages, or a single one.
void scan_messages(const std::string& column, const dom::element& field, const std::string& where, FirstRecords& seen) {
  const dom::element value = messages_in_text(column, field);
  std::vector<dom::object> messages;
  dom::array list;
  dom::object object;
  if (value.get(object) == simdjson::SUCCESS) messages.push_back(object);
  if (value.get(list) == simdjson::SUCCESS)
    for (const dom::element message : list)
      if (message.get(object) == simdjson::SUCCESS) messages.push_back(object);
  if (messages.empty()) {
    if (is_one_of(column, kMessagesWords)) seen.texts.emplace(column, describe(value));
    return;
  }
  FirstMessages& found = seen.messages[column];
  found.is_dialogue |= messages.size() > 1;
  for (const dom::object& message : messages)
    for (const auto& member : message) {
      if (is_empty(member.value)) continue;
      found.keys.emplace(member.key, where);
      std::string_view role;
      if (is_one_of(member.key, {"role", "from"}) && member.value.get(role) == simdjson::SUCCESS)
        found.roles.emplace(role, where);
    }
}

void scan_file(const std::filesystem::path& path, FirstRecords& seen) {
  DatasetSpec unknown;
  unknown.columns.history = "";
  RecordConverter converter(unknown, false);
  for_first_records(path, kFirstRecords, [&](const RecordText& record) {
    for (const std::string_view word : {"{{NAME}}", "{{AUTHOR}}"})
      if (record.text.find(word) != record.text.npos) seen.placeholders.emplace(word, record.where());
    try {
      for (const auto& field : converter.parse(record.text)) {
        if (seen.keys.emplace(field.key, record.where()).second) seen.order.emplace_back(field.key);
        if (is_empty(field.value)) continue;
        seen.columns.emplace(field.key, record.where());
        if (as_flag(field.value)) seen.flags.emplace(field.key, record.where());
        if (field.value.is_number()) seen.numbers.emplace(field.key, record.where());
        scan_messages(std::string(field.key), field.value, record.where(), seen);
      }
      ++seen.records;
    } catch (const Error& e) {  // if others can be read, the encoder reports this one
      if (seen.fault.empty()) seen.fault = fmt::format("{}: {}", record.where(), e.what());
    }
  });
}

}  // namespace

std::string listed(const Names& names) {
  std::string text;
  for (const auto& [name, where] : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string FirstRecords::first(Words names) const {
  const auto found = std::find_if(names.begin(), names.end(), [&](auto name) { return has(name); });
  return found == names.end() ? std::string() : std::string(*found);
}

bool is_empty(const dom::element& value) {
  dom::array list;
  return value.is_null() || (value.get(list) == simdjson::SUCCESS && list.size() == 0);
}

ValueKind kind_of(const dom::element& value) {
  if (value.is_number()) return as_flag(value) ? binary_number : number_value;
  if (value.is_array() || value.is_object()) return list_value;
  return as_flag(value) ? flag_value : text_value;
}

FirstRecords read_first_records(const std::vector<std::filesystem::path>& files) {
  FirstRecords seen;
  for (std::size_t i = 0; i < std::min(kFirstFiles, files.size()); ++i) scan_file(files[i], seen);
  return seen;
}

}  // namespace qft::encode

#include "passages.h"

#include "qft/core/error.h"
#include "qft/encode/item.h"

#include <algorithm>
#include <string>
#include <vector>

#include "message_reader.h"
#include "record_value.h"
#include "turn_reader.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

[[noreturn]] void refuse_mixed(const std::string& column) {
  fail("{}: a list has texts and messages side by side: write all as texts, or each as a list of messages", column);
}

/// Reads a document that is a list of messages: an optional system message, then one message of any other role.
Passage passage_of_messages(const dom::array& messages, const std::string& column, const DatasetSpec& spec) {
  Passage passage;
  bool has_text = false;
  for (const dom::element element : messages) {
    if (element.is_string()) refuse_mixed(column);
    const dom::object message = object_of(element, column);
    const std::string role = text_or_empty(message, spec.tags.role);
    std::string text = text_or_empty(message, spec.tags.content);
    if (role == spec.tags.system) {
      passage.system = std::move(text);
      passage.has_system = true;
      continue;
    }
    if (has_text) fail("{}: a document is a list of two messages besides the system message; write one message", column);
    passage.text = std::move(text);
    has_text = true;
  }
  if (!has_text) fail("{}: a document has no message with a text", column);
  return passage;
}

/// Appends the documents of a column.
void read_column(const dom::object& record, const std::string& column, bool relevant, const DatasetSpec& spec,
                 std::vector<Passage>& passages) {
  const auto value = find(record, column);
  if (!value) return;
  const auto add = [&](Passage passage) {
    passage.relevant = relevant;
    passages.push_back(std::move(passage));
  };
  dom::array list;
  if (value->is_object()) fail("{}: expected a text or a list, got a message: put it in [ ]", column);
  if (value->get(list) != simdjson::SUCCESS) return add({text_of(*value, column)});
  if (list.size() > 0 && list.at(0).is_object()) return add(passage_of_messages(list, column, spec));
  for (const dom::element element : list) {
    if (element.is_object()) refuse_mixed(column);
    dom::array messages;
    if (element.get(messages) == simdjson::SUCCESS)
      add(passage_of_messages(messages, column, spec));
    else
      add({text_of(element, column)});
  }
}

std::optional<Drop> read_anchor(const dom::object& record, const DatasetSpec& spec, Conversation& conversation) {
  const ColumnNames& columns = spec.columns;
  conversation.system = text_or_empty(record, columns.system);
  conversation.has_system = !conversation.system.empty();
  if (spec.formatting == Formatting::alpaca) {
    if (!find(record, columns.prompt) && !find(record, columns.query))
      return Drop{DropReason::no_answer, fmt::format("'{}' is missing or null", columns.prompt)};
    std::string anchor = text_or_empty(record, columns.prompt);
    const std::string query = text_or_empty(record, columns.query);
    if (!anchor.empty() && !query.empty() && !spec.of_v1) anchor += '\n';
    conversation.prompt.push_back({Role::user, anchor + query});
    return std::nullopt;
  }
  Turns turns = read_turns(list_of(record, columns.messages), spec);
  if (turns.fault) return turns.fault;
  if (turns.messages.size() != 1)
    return Drop{DropReason::turns,
                fmt::format("'{}' has {} messages, but expected is one user's message (and a system message before it)",
                            columns.messages, turns.messages.size())};
  if (turns.has_system) {
    conversation.system = turns.system;
    conversation.has_system = true;
  }
  conversation.prompt = std::move(turns.messages);
  return std::nullopt;
}

/// Applies a label with one number per document.
void mark_by_labels(const std::vector<double>& labels, const ColumnNames& columns, std::vector<Passage>& passages) {
  if (labels.size() != passages.size())
    fail("'{}' has {} numbers, but '{}' has {} documents: write one label, 1 or 0, for each document", columns.label,
         labels.size(), columns.positive, passages.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != 0.0 && labels[i] != 1.0)
      fail("'{}' has the label {}, but a document is either relevant (1) or not (0)", columns.label, labels[i]);
    passages[i].relevant = labels[i] == 1.0;
  }
}

}  // namespace

std::optional<Drop> read_passages(const dom::object& record, const DatasetSpec& spec, Conversation& conversation) {
  if (auto fault = read_anchor(record, spec, conversation)) return fault;
  const ColumnNames& columns = spec.columns;
  std::vector<Passage>& passages = conversation.passages;
  if (!columns.positive.empty()) read_column(record, columns.positive, true, spec, passages);
  if (find(record, columns.label)) {
    conversation.label = text_or_json(record, columns.label);
    const auto label = find(record, columns.label);
    const std::vector<double> labels =
        parse_targets(conversation.label, fmt::format("'{}'", columns.label));  // throws if invalid
    if (label->is_array() || labels.size() != 1) {
      if (spec.min_label)
        fail_config("dataset '{}': '{}' is {}, but min_label compares one label of a pair: remove min_label, or write pairs",
                    spec.name, columns.label, conversation.label);
      mark_by_labels(labels, columns, passages);
      conversation.label.clear();
    }
  }
  for (const std::string& column : columns.negatives) read_column(record, column, false, spec, passages);
  std::ranges::stable_partition(passages, &Passage::relevant);
  return std::nullopt;
}

}  // namespace qft::encode

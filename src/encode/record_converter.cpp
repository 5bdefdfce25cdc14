#include "qft/encode/record_converter.h"

#include "qft/core/error.h"
#include "qft/core/python_json.h"
#include "qft/encode/item.h"

#include <algorithm>
#include <utility>

#include "dataset_form.h"
#include "json_texts.h"
#include "message_reader.h"
#include "passages.h"
#include "record_value.h"
#include "tool_calls.h"
#include "turn_reader.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;
using Body = std::function<void(std::string_view, std::string_view)>;

void each_text(std::string_view column, const dom::element& value, const Body& body) {
  if (dom::array list; value.get(list) == simdjson::SUCCESS) {
    for (const dom::element item : list) each_text(column, item, body);
  } else if (dom::object object; value.get(object) == simdjson::SUCCESS) {
    for (const auto& field : object) each_text(column, field.value, body);
  } else if (is_text(value)) {
    body(column, std::string_view(value));
  }
}

}  // namespace

namespace dom = simdjson::dom;

dom::object RecordConverter::parse(std::string_view text) {
  dom::element root;
  if (const auto error = parser_.parse(text.data(), text.size()).get(root); error != simdjson::SUCCESS) {
    quoted_ = quote_python_numbers(text);
    if (quoted_ == text || parser_.parse(quoted_).get(root) != simdjson::SUCCESS) {
      parse_python_json(text, "a record");  // names place and reason, unlike simdjson
      fail("a record: invalid JSON: {}", simdjson::error_message(error));
    }
  }
  refuse_repeated_keys(root);
  const dom::object record = object_of(root, "a record");
  if (const std::string json = without_json_texts(record, spec_); !json.empty()) return parse(json);
  return record;
}

std::vector<std::string> RecordConverter::columns(const RecordText& record) {
  if (is_text_) return {"text"};
  std::vector<std::string> names;
  for (const auto& field : parse(record.text)) names.emplace_back(field.key);
  return names;
}

std::vector<std::string> RecordConverter::message_keys(const RecordText& record) {
  std::vector<std::string> names;
  const auto value = is_text_ ? std::nullopt : find(parse(record.text), spec_.columns.messages);
  dom::array messages;
  if (!value || value->get(messages) != simdjson::SUCCESS) return names;
  for (const dom::element message : messages) {
    dom::object object;
    if (message.get(object) != simdjson::SUCCESS) continue;
    for (const auto& field : object) names.emplace_back(field.key);
  }
  return names;
}

void RecordConverter::convert_alpaca(const Object& record, Conversation& conversation) const {
  const ColumnNames& columns = spec_.columns;
  if (const auto history = find(record, columns.history); history && history->is_array()) {
    for (const dom::element pair : dom::array(*history)) {
      dom::array turns;
      if (pair.get(turns) != simdjson::SUCCESS || turns.size() != 2)
        fail("{}: expected pairs of a question and an answer", columns.history);
      conversation.prompt.push_back({Role::user, text_of(turns.at(0), columns.history)});
      conversation.prompt.push_back({Role::assistant, text_of(turns.at(1), columns.history)});
    }
  }
  std::string question = text_or_empty(record, columns.prompt);
  const std::string query = text_or_empty(record, columns.query);
  if (!question.empty() && !query.empty() && !spec_.of_v1) question += '\n';
  conversation.prompt.push_back({Role::user, question + query});

  // A value that is not a text is not an answer; only the stage knows whether that matters.
  const auto add_response = [&](const std::string& column) {
    const auto value = find(record, column);
    if (!value) return;
    if (is_text(*value))
      conversation.responses.push_back({Role::assistant, std::string(std::string_view(*value))});
    else
      conversation.answer_fault = describe_not_a_text(*value, column);
  };
  if (spec_.ranking) {
    add_response(columns.chosen);
    add_response(columns.rejected);
  } else {
    add_response(columns.response);
  }
  conversation.system = text_or_empty(record, columns.system);
  read_tool_columns(record, conversation);
  read_feedback(record, conversation);
}

void RecordConverter::read_feedback(const Object& record, Conversation& conversation) const {
  const std::optional<bool> liked = flag_in(record, spec_.columns.kto_tag);
  if (liked && conversation.responses.size() == 1) conversation.desirable = *liked;
}

void RecordConverter::read_label(const Object& record, Conversation& conversation) const {
  if (!find(record, spec_.columns.label)) return;
  conversation.label = text_or_json(record, spec_.columns.label);
  parse_targets(conversation.label, fmt::format("'{}'", spec_.columns.label));  // throws if invalid
}

// Adds an answer of a pair from `column`: a text, a message, or a list that ends with the answer. `question` is the
// conversation before it.
std::optional<Drop> RecordConverter::add_answer(const Object& record, const std::string& column,
                                                std::span<const Message> question, Conversation& conversation) const {
  const auto value = find(record, column);
  if (!value) return std::nullopt;
  if (is_text(*value)) {
    conversation.responses.push_back({Role::assistant, text_of(*value, column)});
    return std::nullopt;
  }
  Turns turns = read_answer(*value, column);
  const auto drop = [&](const std::string& why) {
    return Drop{turns.fault ? turns.fault->reason : DropReason::turns, fmt::format("{}: {}", column, why)};
  };
  if (turns.fault) return drop(turns.fault->detail);
  if (turns.messages.empty() || !is_answer(turns.messages.back().role)) return drop("it does not end with an answer");
  conversation.responses.push_back(std::move(turns.messages.back()));
  turns.messages.pop_back();
  if (!turns.messages.empty() && !std::ranges::equal(turns.messages, question))
    return drop("its messages before the last differ from the conversation before the pair");
  return std::nullopt;
}

// Reads an answer from a single message or a list, which begins with the question or is the answer alone.
Turns RecordConverter::read_answer(const simdjson::dom::element& value, const std::string& column) const {
  dom::array list;
  try {
    if (value.get(list) == simdjson::SUCCESS) {
      const bool alone = list.size() > 0 && list.at(0).is_object() && begins_with_answer(list.at(0).value());
      return read_turns(list, spec_, alone ? Role::assistant : Role::user);
    }
    Turns turns;
    const dom::object message = object_of(value, column);
    const std::string word = text_or_empty(message, spec_.tags.role);
    const auto speaker = speaker_of(word, spec_.tags);
    if (speaker && is_answer(*speaker))
      turns.messages.push_back(MessageReader(spec_).read(message, 1, *speaker));
    else
      turns.fault =
          Drop{speaker ? DropReason::turns : DropReason::role, fmt::format("the role is '{}', but an answer is expected", word)};
    return turns;
  } catch (const ConfigError&) {
    throw;
  } catch (const Error& error) {
    fail("{}: {}", column, error.what());
  }
}

bool RecordConverter::begins_with_answer(const Object& message) const {
  const auto speaker = speaker_of(text_or_empty(message, spec_.tags.role), spec_.tags);
  return speaker && is_answer(*speaker);
}

std::optional<Drop> RecordConverter::convert_messages(const Object& record, Conversation& conversation) const {
  const ColumnNames& columns = spec_.columns;
  const dom::array list = list_of(record, columns.messages);
  const bool may_lack_answer = ending_ == Ending::any;
  Turns turns = spec_.formatting == Formatting::turns ? read_sides(list, spec_, may_lack_answer) : read_turns(list, spec_);
  if (turns.fault && turns.fault->reason == DropReason::role && spec_.formatting != Formatting::sharegpt)
    throw Error(turns.fault->detail);  // as LLaMA-Factory does
  conversation.has_system = turns.has_system;
  conversation.system = turns.has_system ? turns.system : text_or_empty(record, columns.system);
  conversation.thinking_note = spec_.formatting == Formatting::openai;
  read_tool_columns(record, conversation);
  if (turns.fault) return turns.fault;
  std::vector<Message>& messages = turns.messages;
  if (messages.empty()) return Drop{DropReason::turns, fmt::format("'{}' has no question and answer", columns.messages)};
  // A conversation before a pair ends with the question, any other with the answer.
  const bool before_pair = spec_.ranking && !columns.chosen.empty() && columns.chosen != columns.messages;
  const bool prompt_only = (may_lack_answer || !columns.label.empty()) && !spec_.ranking && messages.size() % 2 == 1;
  if (!prompt_only && messages.size() % 2 != (before_pair ? 1 : 0))
    return Drop{DropReason::turns,
                before_pair ? "the conversation before the pair ends with an answer" : "it ends with a question"};
  if (!prompt_only && !before_pair) {
    conversation.responses.push_back(std::move(messages.back()));
    messages.pop_back();
  }
  conversation.prompt = std::move(messages);
  if (prompt_only) return std::nullopt;
  if (before_pair)
    if (auto fault = add_answer(record, columns.chosen, conversation.prompt, conversation)) return fault;
  if (spec_.ranking)
    if (auto fault = add_answer(record, columns.rejected, conversation.prompt, conversation)) return fault;
  read_feedback(record, conversation);
  return std::nullopt;
}

std::optional<Drop> RecordConverter::convert_passages(const Object& record, Conversation& conversation) const {
  if (auto fault = read_passages(record, spec_, conversation)) return fault;
  if (!spec_.min_label) return std::nullopt;
  const double label = conversation.label.empty() ? 1.0 : parse_targets(conversation.label).front();  // missing: as in ms-swift
  if (label >= *spec_.min_label) return std::nullopt;
  return Drop{DropReason::no_answer, fmt::format("{} {} is below min_label {}", spec_.columns.label, label, *spec_.min_label)};
}

void RecordConverter::read_tool_columns(const Object& record, Conversation& conversation) const {
  if (const auto tools = find(record, spec_.columns.tools))
    conversation.tools = read_tools(json_of(*tools, spec_.columns.tools), spec_.columns.tools);
  const auto read = [&](const std::string& column, bool (dom::element::*is_kind)() const noexcept, std::string_view kind,
                        Json& into) {
    const auto value = find(record, column);
    if (!value) return;
    if (!(*value.*is_kind)()) fail("{}: expected {}, got {}", column, kind, describe(*value));
    into = json_of(*value, column);
  };
  read(spec_.columns.documents, &dom::element::is_array, "a list of objects", conversation.documents);
  read(spec_.columns.template_kwargs, &dom::element::is_object, "an object of variables", conversation.template_kwargs);
}

void RecordConverter::add_origin(const Object& record, Conversation& conversation) const {
  const std::string& column = spec_.columns.category;
  if (!spec_.columns.weight.empty()) conversation.weight = record_weight(record, spec_.columns.weight);
  conversation.category = text_or_json(record, column.empty() ? std::string(kDifficulty) : column);
  for (const std::string& column : spec_.columns.tags)
    if (find(record, column)) conversation.tags.emplace_back(column, text_or_json(record, column));
}

std::variant<Conversation, Drop> RecordConverter::convert(const RecordText& text) try {
  Conversation conversation;
  if (is_text_) {
    conversation.prompt.push_back({Role::user, std::string(text.text)});
    return conversation;
  }
  const Object record = parse(text.text);
  require_as_decided(record, spec_);
  if (spec_.passages) {
    if (auto fault = convert_passages(record, conversation)) return std::move(*fault);
    add_origin(record, conversation);
    return conversation;
  }
  if (spec_.formatting == Formatting::alpaca)
    convert_alpaca(record, conversation);
  else if (auto fault = convert_messages(record, conversation))
    return std::move(*fault);
  read_label(record, conversation);
  add_origin(record, conversation);
  return conversation;
} catch (const simdjson::simdjson_error& error) {
  fail("invalid JSON: {}", error.what());
}

void RecordTexts::each(const RecordText& record, const Body& body) {
  if (is_text_) return body("text", record.text);
  const ColumnNames& c = spec_.columns;
  const bool is_alpaca = spec_.formatting == Formatting::alpaca;
  for (const auto& field : converter_.parse(record.text)) {
    const auto is_one_of = [&](std::initializer_list<const std::string*> columns) {
      for (const std::string* column : columns)
        if (*column == field.key) return true;
      return false;
    };
    const bool is_read = (is_alpaca ? is_one_of({&c.prompt, &c.query, &c.history}) : is_one_of({&c.messages})) ||
                         (is_alpaca && !spec_.ranking && is_one_of({&c.response})) ||
                         (spec_.ranking && is_one_of({&c.chosen, &c.rejected})) || is_one_of({&c.system, &c.tools});
    if (is_read) each_text(field.key, field.value, body);
  }
}

}  // namespace qft::encode

#include "qft/encode/record_converter.h"

#include "qft/core/error.h"
#include "qft/encode/item.h"

#include <optional>
#include <utility>

#include "content_blocks.h"
#include "python_json.h"
#include "record_value.h"
#include "record_weights.h"

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

// What the openai format says of reasoning where the data says nothing, as LLaMA-Factory does.
constexpr std::string_view kThinkingOff = "detailed thinking off";
constexpr std::string_view kThinkingOn = "detailed thinking on";
// Between the results of calls made at once.
constexpr std::string_view kResultSeparator = "\n</tool_response>\n<tool_response>\n";

// The role that a word stands for; nothing for an unknown word. A system message is none of these.
std::optional<Role> role_of(std::string_view word, const MessageTags& tags) {
  if (word.empty()) return std::nullopt;
  if (word == tags.user) return Role::user;
  if (word == tags.assistant) return Role::assistant;
  if (word == tags.observation) return Role::observation;
  if (word == tags.function) return Role::function;
  return std::nullopt;
}

// What is wrong where message `number` is of `role` and `before` messages stand before it that are not the system's.
std::optional<Drop> out_of_turn(Role role, std::size_t before, std::size_t number) {
  if (is_answer(role) == (before % 2 == 1)) return std::nullopt;
  return Drop{DropReason::turns,
              fmt::format("message {} is {}, where {} is expected", number, is_answer(role) ? "an answer" : "a question",
                          before % 2 == 1 ? "an answer" : "a question")};
}

// The roles that the tags name, and who says so.
std::string known_roles(const DatasetSpec& spec) {
  const MessageTags& t = spec.tags;
  std::string words;
  for (const std::string& word : {t.user, t.assistant, t.observation, t.function, t.system})
    if (!word.empty()) words += (words.empty() ? "" : ", ") + word;
  return fmt::format("{} ({})", words, spec.tags_from);
}

// What is wrong with the role of message `number`.
Drop unknown_role(const dom::object& message, std::size_t number, const std::string& role, const DatasetSpec& spec) {
  if (role.empty())
    return {DropReason::role, fmt::format("message {} has no '{}' (role_tag, by {}); its keys are {}", number, spec.tags.role,
                                          spec.tags_from, keys_of(message))};
  if (role == spec.tags.system)
    return {DropReason::turns, fmt::format("message {} has the role '{}', which only the first may have", number, role)};
  return {DropReason::role,
          fmt::format("message {} has the role '{}'; the roles are {}: name it in dataset_info.json under tags, as "
                      "user_tag, assistant_tag, observation_tag, function_tag or system_tag",
                      number, role, known_roles(spec))};
}

std::string content_of(const dom::object& message, std::size_t number, const std::string& key, const DatasetSpec& spec) {
  if (spec.formatting == Formatting::blocks) return text_of_blocks(message, key, number);
  dom::element value;
  if (message.at_key(key).get(value) != simdjson::SUCCESS)
    fail("message {} has no '{}', where its text is expected (by {}); its keys are {}", number, key, spec.tags_from,
         keys_of(message));
  return text_of(value, fmt::format("message {}: {}", number, key));
}

struct NumberedMessage {
  std::size_t number;  // in the record, from 1
  dom::object object;
};

// The messages of a record, with a leading system message taken off into `system`.
std::vector<NumberedMessage> message_objects(const dom::object& record, const DatasetSpec& spec, std::string& system) {
  std::vector<NumberedMessage> messages;
  for (const dom::element message : list_of(record, spec.columns.messages))
    messages.push_back({messages.size() + 1, object_of(message, spec.columns.messages)});
  if (!messages.empty() && !spec.tags.system.empty() &&
      text_or_empty(messages.front().object, spec.tags.role) == spec.tags.system) {
    system = spec.formatting == Formatting::blocks ? text_of_blocks(messages.front().object, spec.tags.content, 1)
                                                   : text_or_empty(messages.front().object, spec.tags.content);
    messages.erase(messages.begin());
  } else {
    system = text_or_empty(record, spec.columns.system);
  }
  return messages;
}

// Adds LLaMA-Factory's note on reasoning to the system message of an openai record.
void add_thinking_note(std::string& system, bool has_tools) {
  if (has_tools) {
    if (!system.empty()) system += '\n';
  } else if (system.empty()) {
    system = kThinkingOff;
  } else if (system.find(kThinkingOn) == system.npos && system.find(kThinkingOff) == system.npos) {
    system.append("\n").append(kThinkingOff);
  }
}

// Whether two lists are the same but for their last elements.
bool alike_before_end(const dom::object& record, const std::string& column, const std::string& other) {
  const dom::array a = list_of(record, column), b = list_of(record, other);
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i + 1 < a.size(); ++i)
    if (simdjson::minify(a.at(i).value()) != simdjson::minify(b.at(i).value())) return false;
  return true;
}

// True or false; of csv files as a text, in Python's or JSON's spelling.
bool read_flag(const simdjson::dom::element& value, bool& flag) {
  if (value.get(flag) == simdjson::SUCCESS) return true;
  std::string_view word;
  if (value.get(word) != simdjson::SUCCESS) return false;
  flag = word == "true" || word == "True";
  return flag || word == "false" || word == "False";
}

}  // namespace

dom::object RecordConverter::parse(std::string_view text) {
  dom::element root;
  if (const auto error = parser_.parse(text.data(), text.size()).get(root); error != simdjson::SUCCESS) {
    quoted_ = quote_python_numbers(text);
    if (quoted_ == text || parser_.parse(quoted_).get(root) != simdjson::SUCCESS) {
      parse_python_json(text, "a record");  // says where and why; simdjson says neither
      fail("a record: invalid JSON: {}", simdjson::error_message(error));
    }
  }
  return object_of(root, "a record");
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

  // A value that is no text is no answer; whether that matters only the stage knows.
  const auto add_response = [&](const std::string& column) {
    const auto value = find(record, column);
    if (!value) return;
    if (is_text(*value))
      conversation.responses.push_back({Role::assistant, std::string(std::string_view(*value))});
    else
      conversation.answer_fault = no_text(*value, column);
  };
  if (spec_.ranking) {
    add_response(columns.chosen);
    add_response(columns.rejected);
  } else {
    add_response(columns.response);
  }
  conversation.system = text_or_empty(record, columns.system);
  conversation.tools = text_or_json(record, columns.tools);
  read_feedback(record, conversation);
}

void RecordConverter::read_feedback(const Object& record, Conversation& conversation) const {
  const auto tag = find(record, spec_.columns.kto_tag);
  bool liked = false;
  if (tag && read_flag(*tag, liked) && conversation.responses.size() == 1)
    conversation.desirable = liked && !conversation.responses.front().text.empty();
}

void RecordConverter::read_label(const Object& record, Conversation& conversation) const {
  if (!find(record, spec_.columns.label)) return;
  conversation.label = text_or_json(record, spec_.columns.label);
  class_values(conversation.label);  // throws for what is none
}

RecordConverter::Parsed RecordConverter::parse_sharegpt(const Object& record) const {
  Parsed parsed;
  for (const auto& [number, message] : message_objects(record, spec_, parsed.system)) {
    const std::string word = text_or_empty(message, spec_.tags.role);
    const std::optional<Role> role = role_of(word, spec_.tags);
    parsed.fault = role ? out_of_turn(*role, parsed.messages.size(), number) : unknown_role(message, number, word, spec_);
    if (parsed.fault) break;
    parsed.messages.push_back({*role, content_of(message, number, spec_.tags.content, spec_)});
    read_message_weights(message, number, parsed.messages.back());
  }
  return parsed;
}

RecordConverter::Parsed RecordConverter::parse_openai(const Object& record) const {
  Parsed parsed;
  std::string results;
  bool has_results = false;
  const auto add = [&](Role role, std::string text, std::size_t number) {
    if (!parsed.fault) parsed.fault = out_of_turn(role, parsed.messages.size(), number);
    parsed.messages.push_back({role, std::move(text)});
  };
  for (const auto& [number, message] : message_objects(record, spec_, parsed.system)) {
    const std::string word = text_or_empty(message, spec_.tags.role);
    std::optional<Role> role = role_of(word, spec_.tags);
    if (!role) {
      parsed.fault = unknown_role(message, number, word, spec_);
      if (parsed.fault->reason == DropReason::role) throw Error(parsed.fault->detail);
      break;
    }
    const bool blocks = spec_.formatting == Formatting::blocks;
    if (blocks && is_answer(*role)) require_full_weight(message, number);
    std::string calls = !is_answer(*role) ? std::string()
                        : blocks          ? calls_of_blocks(message, spec_.tags.content, number)
                                          : calls_of(message);
    if (!calls.empty()) role = Role::function;
    std::string content = calls.empty() ? content_of(message, number, spec_.tags.content, spec_) : std::move(calls);
    if (*role == Role::observation) {
      if (has_results) results.append(kResultSeparator);
      results += content;
      has_results = true;
      continue;
    }
    if (has_results) add(Role::observation, std::exchange(results, {}), number - 1);
    has_results = false;
    add(*role, std::move(content), number);
    read_message_weights(message, number, parsed.messages.back());
  }
  return parsed;
}

RecordConverter::Parsed RecordConverter::parse_turns(const Object& record) const {
  Parsed parsed;
  parsed.system = text_or_empty(record, spec_.columns.system);
  std::size_t number = 0;
  for (const dom::element turn : list_of(record, spec_.columns.messages)) {
    const dom::object pair = object_of(turn, spec_.columns.messages);
    ++number;
    parsed.messages.push_back({Role::user, content_of(pair, number, spec_.tags.user, spec_)});
    parsed.messages.push_back({Role::assistant, content_of(pair, number, spec_.tags.assistant, spec_)});
    read_message_weights(pair, number, parsed.messages.back());
  }
  return parsed;
}

// An answer of a pair: a text, a message, or a conversation that ends with it.
std::optional<Drop> RecordConverter::add_answer(const Object& record, const std::string& column,
                                                Conversation& conversation) const {
  auto answer = find(record, column);
  if (!answer) return std::nullopt;
  if (is_text(*answer)) {
    conversation.responses.push_back({Role::assistant, text_of(*answer, column)});
    return std::nullopt;
  }
  if (dom::array list; answer->get(list) == simdjson::SUCCESS && list.size() > 0) answer = list.at(list.size() - 1);
  const dom::object message = object_of(*answer, column);
  const std::string word = text_or_empty(message, spec_.tags.role);
  const std::optional<Role> role = role_of(word, spec_.tags);
  if (!role) {
    Drop fault = unknown_role(message, 1, word, spec_);
    fault.detail = fmt::format("{}: {}", column, fault.detail);
    return fault;
  }
  conversation.responses.push_back({*role, content_of(message, 1, spec_.tags.content, spec_)});
  read_message_weights(message, 1, conversation.responses.back());
  return std::nullopt;
}

std::optional<Drop> RecordConverter::convert_messages(const Object& record, Conversation& conversation) const {
  const bool is_openai = spec_.formatting == Formatting::openai;
  const bool is_blocks = spec_.formatting == Formatting::blocks;
  Parsed parsed = is_openai || is_blocks                  ? parse_openai(record)
                  : spec_.formatting == Formatting::turns ? parse_turns(record)
                                                          : parse_sharegpt(record);
  conversation.tools = text_or_json(record, spec_.columns.tools);
  if (is_openai) add_thinking_note(parsed.system, !conversation.tools.empty());
  conversation.system = std::move(parsed.system);
  if (parsed.fault) return parsed.fault;
  if (parsed.messages.empty())
    return Drop{DropReason::turns, fmt::format("'{}' has no question and answer", spec_.columns.messages)};
  // The conversation before a pair ends with the question, any other with the answer.
  const ColumnNames& columns = spec_.columns;
  const bool before_pair = spec_.ranking && !columns.chosen.empty() && columns.chosen != columns.messages;
  const bool asks = !columns.label.empty() && !spec_.ranking && parsed.messages.size() % 2 == 1;  // of which it has a label
  if (asks) {
    conversation.prompt = std::move(parsed.messages);
    return std::nullopt;
  }
  if (parsed.messages.size() % 2 != (before_pair ? 1 : 0))
    return Drop{DropReason::turns,
                before_pair ? "the conversation before the pair ends with an answer" : "it ends with a question"};
  if (before_pair) {
    if (auto fault = add_answer(record, columns.chosen, conversation)) return fault;
  } else {
    conversation.responses.push_back(std::move(parsed.messages.back()));
    parsed.messages.pop_back();
  }
  if (spec_.ranking && columns.chosen == columns.messages && !alike_before_end(record, columns.chosen, columns.rejected))
    return Drop{DropReason::turns,
                fmt::format("'{}' and '{}' differ before their last messages", columns.chosen, columns.rejected)};
  if (spec_.ranking)
    if (auto fault = add_answer(record, columns.rejected, conversation)) return fault;
  conversation.prompt = std::move(parsed.messages);
  read_feedback(record, conversation);
  return std::nullopt;
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

}  // namespace qft::encode

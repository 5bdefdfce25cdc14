#include "record_converter.h"

#include "qft/core/error.h"

#include <optional>

#include "python_json.h"

namespace qft::data {
namespace {

namespace dom = simdjson::dom;

// What the openai format says of reasoning where the data says nothing, as LLaMA-Factory does.
constexpr std::string_view kThinkingOff = "detailed thinking off";
constexpr std::string_view kThinkingOn = "detailed thinking on";
// Between the results of calls made at once.
constexpr std::string_view kResultSeparator = "\n</tool_response>\n<tool_response>\n";

std::string describe(const dom::element& value) {
  std::string_view text;
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "a list";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return value.get(text) == simdjson::SUCCESS && is_quoted_number(text)
                 ? fmt::format("the number {}", text.substr(1))
                 : "a text";
    case dom::element_type::BOOL:
    case dom::element_type::NULL_VALUE:
      return simdjson::minify(value);
    default:
      return fmt::format("the number {}", simdjson::minify(value));
  }
}

bool is_text(const dom::element& value) {
  std::string_view text;
  return value.get(text) == simdjson::SUCCESS && !is_quoted_number(text);
}

// "output: expected a text, got the number 42: put it in quotes"
std::string no_text(const dom::element& value, std::string_view what) {
  const std::string_view way_out = value.is_array() || value.is_object() ? "" : ": put it in quotes";
  return fmt::format("{}: expected a text, got {}{}", what, describe(value), way_out);
}

// A member that is there and not null.
std::optional<dom::element> find(const dom::object& object, const std::string& key) {
  dom::element value;
  if (key.empty() || object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null())
    return std::nullopt;
  return value;
}

std::string text_of(const dom::element& value, std::string_view what) {
  if (!is_text(value)) throw Error(no_text(value, what));
  return std::string(std::string_view(value));
}

std::string text_or_empty(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  return value ? text_of(*value, key) : std::string();
}

std::string needed_text(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  if (!value) fail("{}: expected a text, got nothing", key);
  return text_of(*value, key);
}

std::string as_python_json(const dom::element& value) {
  return dump_python_json(parse_python_json(simdjson::minify(value), "a record"));
}

// A text as it is, other values as JSON.
std::string text_or_json(const dom::object& object, const std::string& key) {
  const auto value = find(object, key);
  if (!value) return {};
  return value->is_string() ? text_of(*value, key) : as_python_json(*value);
}

dom::object object_of(const dom::element& value, std::string_view what) {
  dom::object object;
  if (value.get(object) != simdjson::SUCCESS) fail("{}: expected an object, got {}", what, describe(value));
  return object;
}

dom::array list_of(const dom::object& record, const std::string& key) {
  const auto value = find(record, key);
  dom::array list;
  if (!value) fail("{}: expected a list, got nothing", key);
  if (value->get(list) != simdjson::SUCCESS) fail("{}: expected a list, got {}", key, describe(*value));
  return list;
}

bool is_answer(Role role) {
  return role == Role::assistant || role == Role::function;
}

// The role that a word stands for; nothing for an unknown word. A system message is none of these.
std::optional<Role> role_of(std::string_view word, const MessageTags& tags) {
  if (word.empty()) return std::nullopt;
  if (word == tags.user) return Role::user;
  if (word == tags.assistant) return Role::assistant;
  if (word == tags.observation) return Role::observation;
  if (word == tags.function) return Role::function;
  return std::nullopt;
}

bool alternates(const std::vector<Message>& messages) {
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (is_answer(messages[i].role) != (i % 2 == 1)) return false;
  return true;
}

// The messages of a record, with a leading system message taken off into `system`.
std::vector<dom::object> message_objects(const dom::object& record, const DatasetSpec& spec,
                                         std::string& system) {
  std::vector<dom::object> objects;
  for (const dom::element message : list_of(record, spec.columns.messages))
    objects.push_back(object_of(message, spec.columns.messages));
  if (!objects.empty() && !spec.tags.system.empty() &&
      text_or_empty(objects.front(), spec.tags.role) == spec.tags.system) {
    system = text_or_empty(objects.front(), spec.tags.content);
    objects.erase(objects.begin());
  } else {
    system = text_or_empty(record, spec.columns.system);
  }
  return objects;
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

// [{"function": {...}}, ...] as the list of the inner objects; "" where there is no call.
std::string calls_of(const dom::object& message) {
  const auto value = find(message, "tool_calls");
  dom::array calls;
  if (!value) return {};
  if (value->get(calls) != simdjson::SUCCESS) fail("tool_calls: expected a list, got {}", describe(*value));
  std::string list;
  for (const dom::element call : calls) {
    const auto function = find(object_of(call, "tool_calls"), "function");
    if (!function) fail("tool_calls: a call without a function");
    list += (list.empty() ? "[" : ", ") + as_python_json(*function);
  }
  return list.empty() ? list : list + "]";
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
  if (!question.empty() && !query.empty()) question += '\n';
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
  if (tag && tag->get(liked) == simdjson::SUCCESS && conversation.responses.size() == 1)
    conversation.desirable = liked && !conversation.responses.front().text.empty();
}

RecordConverter::Parsed RecordConverter::parse_sharegpt(const Object& record) const {
  Parsed parsed;
  for (const dom::object& message : message_objects(record, spec_, parsed.system)) {
    const std::optional<Role> role = role_of(text_or_empty(message, spec_.tags.role), spec_.tags);
    if (!role || is_answer(*role) != (parsed.messages.size() % 2 == 1)) {
      parsed.in_order = false;
      return parsed;
    }
    parsed.messages.push_back({*role, needed_text(message, spec_.tags.content)});
  }
  return parsed;
}

RecordConverter::Parsed RecordConverter::parse_openai(const Object& record) const {
  Parsed parsed;
  std::string results;
  bool has_results = false;
  for (const dom::object& message : message_objects(record, spec_, parsed.system)) {
    const std::string word = needed_text(message, spec_.tags.role);
    std::optional<Role> role = role_of(word, spec_.tags);
    if (!role && word == spec_.tags.system) {
      parsed.in_order = false;
      return parsed;
    }
    if (!role) fail("{}: unknown role '{}'", spec_.columns.messages, word);
    std::string calls = is_answer(*role) ? calls_of(message) : std::string();
    if (!calls.empty()) role = Role::function;
    std::string content = calls.empty() ? needed_text(message, spec_.tags.content) : std::move(calls);
    if (*role == Role::observation) {
      if (has_results) results.append(kResultSeparator);
      results += content;
      has_results = true;
      continue;
    }
    if (has_results) parsed.messages.push_back({Role::observation, std::move(results)});
    has_results = false;
    results.clear();
    parsed.messages.push_back({*role, std::move(content)});
  }
  parsed.in_order = alternates(parsed.messages);
  return parsed;
}

RecordConverter::Parsed RecordConverter::parse_turns(const Object& record) const {
  Parsed parsed;
  parsed.system = text_or_empty(record, spec_.columns.system);
  for (const dom::element turn : list_of(record, spec_.columns.messages)) {
    const dom::object pair = object_of(turn, spec_.columns.messages);
    parsed.messages.push_back({Role::user, needed_text(pair, spec_.tags.user)});
    parsed.messages.push_back({Role::assistant, needed_text(pair, spec_.tags.assistant)});
  }
  return parsed;
}

bool RecordConverter::convert_messages(const Object& record, Conversation& conversation) const {
  const bool is_openai = spec_.formatting == Formatting::openai;
  Parsed parsed = is_openai                                   ? parse_openai(record)
                  : spec_.formatting == Formatting::turns ? parse_turns(record)
                                                          : parse_sharegpt(record);
  conversation.tools = text_or_json(record, spec_.columns.tools);
  if (is_openai) add_thinking_note(parsed.system, !conversation.tools.empty());
  conversation.system = std::move(parsed.system);
  // A pair's conversation ends with the question, any other with the answer.
  if (!parsed.in_order || parsed.messages.empty() || parsed.messages.size() % 2 != (spec_.ranking ? 1 : 0))
    return false;
  if (!spec_.ranking) {
    conversation.responses.push_back(std::move(parsed.messages.back()));
    parsed.messages.pop_back();
  } else {
    for (const std::string& column : {spec_.columns.chosen, spec_.columns.rejected}) {
      const auto answer = find(record, column);
      if (!answer) break;
      const dom::object message = object_of(*answer, column);
      const std::optional<Role> role = role_of(text_or_empty(message, spec_.tags.role), spec_.tags);
      if (!role) return false;
      conversation.responses.push_back({*role, needed_text(message, spec_.tags.content)});
    }
  }
  conversation.prompt = std::move(parsed.messages);
  read_feedback(record, conversation);
  return true;
}

void RecordConverter::add_origin(const Object& record, Conversation& conversation) const {
  const std::string& column = spec_.columns.category;
  conversation.category = text_or_json(record, column.empty() ? std::string(kDifficulty) : column);
  for (const std::string& column : spec_.columns.tags)
    if (find(record, column)) conversation.tags.emplace_back(column, text_or_json(record, column));
}

std::variant<Conversation, DropReason> RecordConverter::convert(const RecordText& text) try {
  Conversation conversation;
  if (is_text_) {
    conversation.prompt.push_back({Role::user, std::string(text.text)});
    return conversation;
  }
  const Object record = parse(text.text);
  if (spec_.formatting == Formatting::alpaca)
    convert_alpaca(record, conversation);
  else if (!convert_messages(record, conversation))
    return DropReason::turns;
  add_origin(record, conversation);
  return conversation;
} catch (const simdjson::simdjson_error& error) {
  fail("invalid JSON: {}", error.what());
}

}  // namespace qft::data

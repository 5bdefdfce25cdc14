#include "message_reader.h"

#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <span>

#include "dataset_words.h"
#include "record_value.h"
#include "thought.h"
#include "tool_calls.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

namespace dom = simdjson::dom;

/// Maps each tag to its speaker.
constexpr std::pair<std::string MessageTags::*, Speaker> kSpeakers[] = {{&MessageTags::user, Speaker::user},
                                                                        {&MessageTags::assistant, Speaker::assistant},
                                                                        {&MessageTags::observation, Speaker::observation},
                                                                        {&MessageTags::function, Speaker::call},
                                                                        {&MessageTags::system, Speaker::system}};

constexpr std::string_view kCalls = "tool_calls", kOldCall = "function_call", kRefusal = "refusal";
/// Metadata keys of a message; not part of its text.
constexpr std::string_view kAboutKeys[] = {"id", "name", "tool_call_id", "type", "index", "timestamp", "loss_weight"};

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string place_of(std::size_t number, std::string_view key) {
  return fmt::format("message {}: {}", number, key);
}

/// Whether ignoring the value would lose something: not null, blank, false or empty.
bool has_content(const dom::element& value) {
  std::string_view text;
  bool flag = false;
  if (value.get(text) == simdjson::SUCCESS) return !stripped(text).empty();
  if (value.get(flag) == simdjson::SUCCESS) return flag;
  if (value.is_array()) return dom::array(value).size() > 0;
  if (value.is_object()) return dom::object(value).size() > 0;
  return !value.is_null();
}

void set_thought(std::string_view text, const std::string& what, std::string_view from, Message& read, std::string_view& key) {
  if (stripped(text).empty()) return;
  if (read.thought && stripped(*read.thought) != stripped(text))
    fail("{}: its thought differs from the one in '{}'; keep one of the two", what, key);
  read.thought = text;
  key = from;
}

/// Returns the text member of a block.
std::string text_of_block(const dom::object& block, std::initializer_list<std::string_view> names, const std::string& what) {
  for (const std::string_view name : names)
    if (const auto value = find(block, std::string(name))) return text_of(*value, fmt::format("{}: {}", what, name));
  fail("{}: a block of type '{}' has none of the keys {}; its keys are {}", what, text_or_empty(block, "type"),
       fmt::join(names, ", "), keys_of(block));
}

/// Reads a list of blocks and joins them without a separator.
void read_blocks(const dom::array& blocks, const std::string& what, Message& read) {
  std::string_view thought_key = "a block";
  for (const dom::element element : blocks) {
    const dom::object block = object_of(element, what);
    const std::string type = text_or_empty(block, "type");
    if (type == "text" || type == "input_text" || type == "output_text") {
      read.text += text_of_block(block, {"text", "value"}, what);
    } else if (type == "thinking" || type == "reasoning") {
      set_thought(text_of_block(block, {"thinking", "reasoning", "text", "value"}, what), what, "a block", read, thought_key);
    } else if (type == "refusal") {
      read.text += text_of_block(block, {"refusal", "text"}, what);
    } else if (type == "tool_call") {
      const auto call = find(block, "value");
      if (!call) fail("{}: a block of type 'tool_call' has no 'value'; its keys are {}", what, keys_of(block));
      for (Call& each : read_calls(json_of(*call, what), what)) read.calls.push_back(std::move(each));
    } else {
      fail(
          "{}: a block has the type '{}'; qft reads text, thinking, reasoning, refusal and tool_call blocks, and trains on text "
          "only",
          what, type);
    }
  }
}

/// Reads `key` of a message: a text or a list of blocks; null or a missing key means no text.
void read_content(const dom::object& message, const std::string& key, std::size_t number, Speaker speaker, Message& read) {
  const auto value = find(message, key);
  if (!value) return;
  const std::string what = place_of(number, key);
  dom::array blocks;
  if (speaker == Speaker::call && !value->is_string()) {
    read.calls = read_calls(json_of(*value, what), what);
  } else if (value->get(blocks) == simdjson::SUCCESS) {
    read_blocks(blocks, what, read);
  } else if (speaker == Speaker::call) {
    TextAndCalls both = read_call_text(text_of(*value, what), what);
    read.text = std::move(both.text);
    read.calls = std::move(both.calls);
  } else {
    read.text = text_of(*value, what);
  }
}

/// Reads an answer's thought, refusal and calls from their separate keys.
void read_answer_keys(const dom::object& message, std::size_t number, Message& read) {
  std::string_view thought_key = "a block";
  for (const std::string_view key : kThoughtKeys)
    if (const auto value = find(message, std::string(key)))
      set_thought(text_of(*value, place_of(number, key)), place_of(number, key), key, read, thought_key);
  if (const auto refusal = find(message, std::string(kRefusal)); refusal && has_content(*refusal)) {
    const std::string what = place_of(number, kRefusal), text = text_of(*refusal, what);
    if (!read.text.empty() && read.text != text) fail("{}: the message also has another text; keep one of the two", what);
    read.text = text;
  }
  const auto calls = find(message, std::string(kCalls)), old_call = find(message, std::string(kOldCall));
  for (const auto& [value, key] : {std::pair(calls, kCalls), std::pair(old_call, kOldCall)}) {
    if (!value || !has_content(*value)) continue;
    const std::string what = place_of(number, key);
    std::vector<Call> found = read_calls(json_of(*value, what), what);
    if (!read.calls.empty() && read.calls != found) fail("{}: the message also has other calls; keep one of the two", what);
    read.calls = std::move(found);
  }
}

/// Warns once per process that a key is not read.
void warn_unread_key(const std::string& dataset, std::string_view key, std::size_t number) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (!warned.insert(fmt::format("{}\n{}", dataset, key)).second) return;
  log::warn("dataset {}: messages have '{}', which is not read (the first is message {} of its record)", dataset, key, number);
}

void check_v1_weight(const dom::object& message, std::size_t number) {
  const auto weight = find(message, "loss_weight");
  double value = 1.0;
  if (weight && (weight->get(value) != simdjson::SUCCESS || value != 1.0))
    fail("message {}: loss_weight: expected 1, got {}: answers all have the same weight; mask_history learns only the last one",
         number, simdjson::minify(*weight));
}

Role role_of(Speaker speaker) {
  if (speaker == Speaker::observation) return Role::observation;
  return speaker == Speaker::user ? Role::user : Role::assistant;
}

}  // namespace

bool Message::is_empty() const {
  return stripped(text).empty() && calls.empty() && stripped(thought.value_or("")).empty();
}

std::optional<Speaker> speaker_of(std::string_view word, const MessageTags& tags) {
  if (word.empty()) return std::nullopt;
  for (const auto& [tag, speaker] : kSpeakers)
    if (word == tags.*tag) return speaker;
  for (const RoleWords& row : kRoleWords)
    if (is_one_of(word, row.words))
      return std::ranges::find(kSpeakers, row.tag, &std::pair<std::string MessageTags::*, Speaker>::first)->second;
  return std::nullopt;
}

Message MessageReader::read(const dom::object& message, std::size_t number, Speaker speaker) const {
  Message read;
  read.role = role_of(speaker);
  dom::element content;
  const bool has_key = message.at_key(spec_.tags.content).get(content) == simdjson::SUCCESS;
  read_content(message, spec_.tags.content, number, speaker, read);
  if (is_answer(read.role)) read_answer_keys(message, number, read);
  // A message with only calls or a thought has null content.
  if (read.is_empty() && !has_key)
    fail("message {} has no '{}', which should hold its text (from {}); its keys are {}", number, spec_.tags.content,
         spec_.tags_from, keys_of(message));
  if (read.is_empty() && content.is_null() && !is_answer(read.role))
    throw Error(describe_not_a_text(content, place_of(number, spec_.tags.content)));
  if (read.role == Role::observation) {
    read.name = text_or_empty(message, "name");
    read.call_id = text_or_empty(message, "tool_call_id");
  }
  if (spec_.formatting == Formatting::blocks && is_answer(read.role)) check_v1_weight(message, number);
  read_message_weights(message, number, read);
  check_other_keys(message, number, {spec_.tags.role, spec_.tags.content}, read);
  return read;
}

Message MessageReader::read_side(const dom::object& pair, std::size_t number, const std::string& key, Role role) const {
  Message read;
  read.role = role;
  if (!find(pair, key))
    fail("message {} has no '{}', which should hold its text (from {}); its keys are {}", number, key, spec_.tags_from,
         keys_of(pair));
  read_content(pair, key, number, role == Role::user ? Speaker::user : Speaker::assistant, read);
  if (role == Role::user) return read;
  read_answer_keys(pair, number, read);
  read_message_weights(pair, number, read);
  check_other_keys(pair, number, {spec_.tags.user, key}, read);
  return read;
}

std::string MessageReader::read_text(const dom::object& message, std::size_t number) const {
  Message read;
  read_content(message, spec_.tags.content, number, Speaker::system, read);
  check_other_keys(message, number, {spec_.tags.role, spec_.tags.content}, read);
  return read.text;
}

void MessageReader::check_other_keys(const dom::object& message, std::size_t number,
                                     const std::array<std::string_view, 2>& own_keys, const Message& read) const {
  for (const auto& [key, value] : message) {
    if (is_in(own_keys, key) || is_in(kAboutKeys, key) || is_in(kLossKeys, key) || is_in(kWeightKeys, key) || !has_content(value))
      continue;
    if (is_answer(read.role) && (is_in(kThoughtKeys, key) || key == kCalls || key == kOldCall || key == kRefusal)) continue;
    if (is_answer(read.role) && read.is_empty())
      fail("message {}: its '{}' is empty, but '{}' has a value that is not read; move the value to '{}', or remove it", number,
           own_keys.back(), key, own_keys.back());
    warn_unread_key(spec_.name, key, number);
  }
}

}  // namespace qft::encode

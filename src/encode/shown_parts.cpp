#include "shown_parts.h"

#include "qft/core/error.h"

#include <string>

#include "excerpt.h"
#include "thought.h"

namespace qft::encode {
namespace {

/// As it stands inside a JSON text.
std::string escaped(std::string_view part) {
  const std::string quoted = dump_python_json(Json(part));
  return quoted.substr(1, quoted.size() - 2);
}

/// Templates write texts without the blanks around them, as they are or inside JSON; a call's arguments also inside a JSON text
/// inside JSON.
bool is_shown(std::string_view text, std::string_view part) {
  part = stripped(part);
  if (text.find(part) != text.npos) return true;
  const std::string once = escaped(part);
  return text.find(once) != text.npos || text.find(escaped(once)) != text.npos;
}

std::string quoted(std::string_view text) {
  return excerpt_around(text, 0, 30, 50).quoted;
}

[[noreturn]] void fail_not_shown(std::string_view what, std::string_view part, std::string_view text) {
  fail(
      "the model's chat template does not show {} as it is: {} is not in {}; take it out of the record, or use another template "
      "(template, chat_template)",
      what, quoted(stripped(part)), quoted(text));
}

void require_shown(std::string_view text, std::string_view part, std::string_view what) {
  if (!is_shown(text, part)) fail_not_shown(what, part, text);
}

/// Names, texts and numbers of a call's arguments; templates write true, false and null in their own words.
void require_arguments_shown(std::string_view text, const Json& value, std::string_view what) {
  if (value.is_string()) {
    require_shown(text, value.get_ref<const std::string&>(), what);
  } else if (value.is_number() || value.is_binary()) {
    require_shown(text, dump_python_json(value), what);
  } else if (value.is_array()) {
    for (const Json& each : value) require_arguments_shown(text, each, what);
  } else if (value.is_object()) {
    for (const auto& [name, each] : value.items()) {
      require_shown(text, name, what);
      require_arguments_shown(text, each, what);
    }
  }
}

/// The names of calls, one behind the other.
void require_calls_shown(std::string_view text, const std::vector<Call>& calls, std::string_view what) {
  std::size_t at = 0;
  for (const Call& call : calls) {
    const std::size_t found = text.find(call.name, at);
    if (found == text.npos) fail_not_shown(what, call.name, text.substr(at));
    at = found + call.name.size();
  }
}

std::string_view name_of(const Json& tool) {
  const Json& described = tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
  if (!described.contains("name") || !described["name"].is_string()) return {};
  return described["name"].get_ref<const std::string&>();
}

/// Behind the last thought.
std::string_view text_behind_thoughts(std::string_view text) {
  const std::size_t close = text.rfind(kThinkClose);
  return close == text.npos ? text : text.substr(close + kThinkClose.size());
}

}  // namespace

void require_answer_shown(std::string_view text, const Message& answer, std::size_t number, bool has_thought) {
  const std::string of = fmt::format(" of answer {}", number + 1);
  const auto split = split_thought(answer.text, kThinkOpen, kThinkClose);
  if (has_thought && answer.thought) require_shown(text, *answer.thought, "the thought" + of);
  if (has_thought && split) require_shown(text, split->thought, "the thought" + of);
  require_shown(text, split ? split->text : std::string_view(answer.text), "the text" + of);
  require_calls_shown(text, answer.calls, "the call" + of);
  for (const Call& call : answer.calls)
    require_arguments_shown(text, call.arguments, fmt::format("the arguments of the call of '{}'{}", call.name, of));
}

void require_prompt_shown(std::string_view text, std::string_view system, const Json& tools, std::span<const Message> messages) {
  require_shown(text, system, "the system message");
  for (const Json& tool : tools) require_shown(text, name_of(tool), "the tool");
  std::size_t number = 0;
  for (const Message& message : messages) {
    ++number;
    if (is_answer(message.role)) {
      require_shown(text, text_behind_thoughts(message.text), fmt::format("the text of message {}", number));
      require_calls_shown(text, message.calls, fmt::format("the call of message {}", number));
      continue;
    }
    require_shown(text, message.text, fmt::format("the text of message {}", number));
    for (const Message& result : message.more_results)
      require_shown(text, result.text, fmt::format("a result of message {}", number));
  }
}

}  // namespace qft::encode

#include "shown_parts.h"

#include "qft/core/error.h"
#include "qft/core/python_json.h"
#include "qft/jinja/strip.h"

#include <algorithm>
#include <cmath>

#include "thought.h"

namespace qft::encode {
namespace {

/// The form inside a JSON text.
std::string in_json(std::string_view part) {
  const std::string quoted = dump_python_json(Json(part));
  return quoted.substr(1, quoted.size() - 2);
}

/// The form between apostrophes in Python.
std::string in_python(std::string_view part) {
  std::string text;
  for (const char c : part) {
    if (c == '\n')
      text += "\\n";
    else if (c == '\r')
      text += "\\r";
    else
      text.append(c == '\\' || c == '\'' ? "\\" : "").append(1, c);
  }
  return text;
}

/// Returns the end of `part` in `text` after `from`; npos if absent. Templates write texts without surrounding blanks,
/// unchanged or as literals; a call's arguments may also be a JSON text inside JSON.
std::size_t end_of(std::string_view text, std::string_view part, std::size_t from) {
  part = jinja::strip_blanks(part);
  if (const std::size_t at = text.find(part, from); at != text.npos) return at + part.size();
  const std::string once = in_json(part);
  for (const std::string& form : {once, in_json(once), in_python(part)})
    if (const std::size_t at = text.find(form, from); at != text.npos) return at + form.size();
  return text.npos;
}

std::string quoted(std::string_view text) {
  return excerpt_around(text, 0, 30, 50).quoted;
}

[[noreturn]] void fail_not_shown(std::string_view what, std::string_view part, std::string_view text) {
  fail(
      "the model's chat template does not show {} unchanged: {} is not in {}; remove it from the record, or use another template "
      "(template, chat_template)",
      what, quoted(stripped(part)), quoted(text));
}

/// Returns the end of the part.
std::size_t require_shown(std::string_view text, std::string_view part, std::string_view what, std::size_t from = 0) {
  const std::size_t end = end_of(text, part, from);
  if (end == text.npos) fail_not_shown(what, part, text.substr(from));
  return end;
}

/// Checks the names, texts and numbers in a call's arguments. Templates spell true, false, null, NaN and infinity in various
/// ways.
void require_arguments_shown(std::string_view text, const Json& value, std::string_view what) {
  if (value.is_string()) {
    require_shown(text, value.get_ref<const std::string&>(), what);
  } else if (value.is_binary() || value.is_number_integer() || (value.is_number() && std::isfinite(value.get<double>()))) {
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

/// Checks calls in sequence. Returns the end of the last name.
std::size_t require_calls_shown(std::string_view text, const std::vector<Call>& calls, const std::string& of) {
  std::size_t at = 0;
  for (const Call& call : calls) at = require_shown(text, call.name, "the call" + of, at);
  for (const Call& call : calls)
    require_arguments_shown(text, call.arguments, fmt::format("the arguments of the call of '{}'{}", call.name, of));
  return at;
}

std::string_view name_of(const Json& tool) {
  const Json& described = tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
  if (!described.contains("name") || !described["name"].is_string()) return {};
  return described["name"].get_ref<const std::string&>();
}

/// Returns the text after the last thought.
std::string_view text_behind_thoughts(std::string_view text) {
  const std::size_t close = text.rfind(kThinkClose);
  return close == text.npos ? text : text.substr(close + kThinkClose.size());
}

/// Checks a message before an answer. Returns its end in `text`.
std::size_t require_message_shown(std::string_view text, const Message& message, std::size_t number, bool with_answers) {
  const std::string of = fmt::format(" of message {}", number);
  if (!is_answer(message.role) && message.more_results.empty()) return require_shown(text, message.text, "the text" + of);
  if (is_answer(message.role))
    return std::max(require_shown(text, with_answers ? text_behind_thoughts(message.text) : "", "the text" + of),
                    require_calls_shown(text, message.calls, of));
  // Some templates sort the results of parallel calls.
  require_shown(text, message.text, "the result" + of);
  for (const Message& result : message.more_results) require_shown(text, result.text, "a result" + of);
  return 0;
}

}  // namespace

void require_answer_shown(std::string_view text, const Message& answer, std::size_t number, bool has_thought) {
  const std::string of = fmt::format(" of answer {}", number + 1);
  const auto split = split_thought(answer.text, kThinkOpen, kThinkClose);
  if (has_thought && answer.thought) require_shown(text, *answer.thought, "the thought" + of);
  if (has_thought && split) require_shown(text, split->thought, "the thought" + of);
  require_shown(text, split ? split->text : std::string_view(answer.text), "the text" + of);
  require_calls_shown(text, answer.calls, of);
}

void require_prompt_shown(std::string_view text, std::string_view system, const Json& tools, std::span<const Message> messages,
                          bool with_answers) {
  require_shown(text, system, "the system message");
  for (const Json& tool : tools) require_shown(text, name_of(tool), "the tool");
  std::size_t number = 0;
  for (const Message& message : messages) text.remove_prefix(require_message_shown(text, message, ++number, with_answers));
}

Excerpt excerpt_around(std::string_view text, std::size_t at, std::size_t before, std::size_t behind) {
  std::size_t begin = at > before ? at - before : 0, end = std::min(text.size(), at + behind);
  const auto continues = [&](std::size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (begin > 0 && continues(begin)) --begin;
  while (continues(end)) ++end;
  return {dump_python_json(Json(std::string(text.substr(begin, end - begin)))), begin > 0, end < text.size()};
}

std::size_t first_mismatch(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace qft::encode

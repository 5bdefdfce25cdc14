#include "tool_calls.h"

#include "qft/core/error.h"
#include "qft/core/json.h"

#include <utility>

#include "thought.h"

namespace qft::encode {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::size_t kShown = 60;  // bytes of a value shown in errors

std::string shown_json(const Json& value) {
  return shortened(dump_python_json(value), kShown);
}

bool is_blank(const Json& value) {
  if (value.is_null()) return true;
  return value.is_string() && stripped(value.get_ref<const std::string&>()).empty();
}

// Parses a JSON text; returns any other value unchanged.
Json parsed_json(const Json& value, std::string_view what) {
  if (!value.is_string()) return value;
  return parse_python_json(stripped(value.get_ref<const std::string&>()), what);
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

Json read_arguments(const Json* value, std::string_view what) {
  if (value == nullptr || is_blank(*value)) return Json::object();
  const std::string where = fmt::format("{}: arguments", what);
  Json arguments = parsed_json(*value, where);
  if (arguments.is_null()) return Json::object();
  if (!arguments.is_object())
    fail("{}: expected a JSON object or its text, got {}: write {{\"name\": value, ...}}", where, shown_json(*value));
  return arguments;
}

Json read_tool(const Json& value, std::string_view what) {
  Json tool = parsed_json(value, what);
  if (!tool.is_object()) fail("{}: expected an object that describes a tool, got {}", what, shown_json(value));
  if (const Json* function = member(tool, "function"); function != nullptr && function->is_string()) {
    Json inner = parsed_json(*function, fmt::format("{}: function", what));
    tool["function"] = std::move(inner);
  }
  Json& described = tool.contains("function") ? tool["function"] : tool;
  if (!described.is_object()) fail("{}: function: expected an object, got {}", what, shown_json(described));
  if (const Json* parameters = member(described, "parameters"); parameters != nullptr && parameters->is_string()) {
    Json inner = is_blank(*parameters) ? Json(nullptr) : parsed_json(*parameters, fmt::format("{}: parameters", what));
    if (!inner.is_object() && !inner.is_null()) fail("{}: parameters: expected an object, got {}", what, shown_json(*parameters));
    described["parameters"] = std::move(inner);
  }
  return tool;
}

}  // namespace

Call read_call(const Json& value, std::string_view what) {
  const Json whole = parsed_json(value, what);
  if (!whole.is_object()) fail("{}: expected an object with name and arguments, got {}", what, shown_json(value));
  const Json* inner = member(whole, "function");
  const Json function = inner == nullptr ? whole : parsed_json(*inner, fmt::format("{}: function", what));
  if (!function.is_object()) fail("{}: function: expected an object with name and arguments, got {}", what, shown_json(*inner));
  const Json* name = member(function, "name");
  if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
    fail("{}: a function call needs a name and arguments, got {}", what, shown_json(function));
  Call call;
  call.name = name->get<std::string>();
  call.arguments = read_arguments(member(function, "arguments"), fmt::format("{}: {}", what, call.name));
  if (const Json* id = member(whole, "id"); id != nullptr && id->is_string()) call.id = id->get<std::string>();
  return call;
}

std::vector<Call> read_calls(const Json& value, std::string_view what) {
  std::vector<Call> calls;
  if (is_blank(value)) return calls;
  const Json list = parsed_json(value, what);
  if (list.is_null()) return calls;
  if (!list.is_array()) return {read_call(list, what)};
  for (const Json& call : list) calls.push_back(read_call(call, what));
  return calls;
}

std::vector<Call> read_calls(std::string_view json, std::string_view what) {
  return read_calls(Json(std::string(json)), what);
}

TextAndCalls read_call_text(std::string_view text, std::string_view what) {
  TextAndCalls read;
  std::size_t open = text.find(kOpen);
  if (open == text.npos) {
    if (const auto thought = split_thought(text, kThinkOpen, kThinkClose)) {
      const auto json = static_cast<std::size_t>(thought->text.data() - text.data());
      read.text = text.substr(0, json);
      text.remove_prefix(json);
    }
    read.calls = read_calls(text, what);
    return read;
  }
  read.text = text.substr(0, open);
  if (!stripped(read.text).ends_with(kThinkClose)) read.text = stripped(read.text);
  while (open != text.npos) {
    const std::size_t begin = open + kOpen.size(), end = text.find(kClose, begin);
    if (end == text.npos) fail("{}: a call begins with {}, but {} is missing", what, kOpen, kClose);
    for (Call& call : read_calls(text.substr(begin, end - begin), what)) read.calls.push_back(std::move(call));
    const std::size_t after = end + kClose.size();
    open = text.find(kOpen, after);
    const std::string_view between = stripped(text.substr(after, open == text.npos ? open : open - after));
    if (!between.empty())
      fail("{}: the text '{}' follows a call; move it: an answer is a thought, then text, then its calls", what,
           between.substr(0, kShown));
  }
  return read;
}

Json read_tools(const Json& value, std::string_view what) {
  Json tools = Json::array();
  if (is_blank(value)) return tools;
  Json list = parsed_json(value, what);
  if (list.is_null()) return tools;
  if (list.is_object()) list = Json::array({std::move(list)});
  if (!list.is_array()) fail("{}: expected a list of tool descriptions, got {}", what, shown_json(value));
  for (const Json& tool : list) tools.push_back(read_tool(tool, what));
  return tools;
}

}  // namespace qft::encode

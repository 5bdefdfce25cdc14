// Calls and tool descriptions of records, brought to one form: objects, whether the data writes them as objects or as JSON texts.
#pragma once

#include "qft/encode/conversation.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// A call as {"name", "arguments"}, or as OpenAI has it, {"type", "id", "function": {...}}. Arguments are an object, the text of
/// one, or missing, null or blank (then none). `what` names the value in errors. Throws Error.
Call read_call(const Json& call, std::string_view what);

/// A list of calls, or one alone. Throws Error.
std::vector<Call> read_calls(const Json& calls, std::string_view what);
/// The same of a JSON text.
std::vector<Call> read_calls(std::string_view json, std::string_view what);

/// The text of a call message: text in front, then all calls, each inside `<tool_call>` marks; or, without marks, an optional
/// thought and the JSON of one call or of a list. The text keeps its thought. Throws Error.
struct TextAndCalls {
  std::string text;
  std::vector<Call> calls;
};
TextAndCalls read_call_text(std::string_view text, std::string_view what);

/// Tool descriptions: a list, the text of one, or one alone; null, blank and "null" mean none. Of each, `function` and
/// `parameters` may be JSON texts. Each of the result is an object. Throws Error.
Json read_tools(const Json& tools, std::string_view what);

}  // namespace qft::encode

// Normalises the calls and tool descriptions of records to objects; the data has objects or JSON texts.
#pragma once

#include "qft/encode/conversation.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

/// Reads a call {"name", "arguments"}, or OpenAI's {"type", "id", "function": {...}}. Arguments are an object or its JSON text;
/// missing, null or blank means none. `what` names the value in errors. Throws Error.
Call read_call(const Json& call, std::string_view what);

/// Reads a list of calls, or a single call. Throws Error.
std::vector<Call> read_calls(const Json& calls, std::string_view what);
/// Does the same for a JSON text.
std::vector<Call> read_calls(std::string_view json, std::string_view what);

/// Reads the text of a call message: text, then all calls, each inside `<tool_call>` marks; or, without marks, an optional
/// thought and the JSON of one call or a list. The text keeps its thought. Throws Error.
struct TextAndCalls {
  std::string text;
  std::vector<Call> calls;
};
TextAndCalls read_call_text(std::string_view text, std::string_view what);

/// Reads tool descriptions: a list, its JSON text, or a single one; null, blank and "null" mean none. `function` and
/// `parameters` may be JSON texts. Returns a list of objects. Throws Error.
Json read_tools(const Json& tools, std::string_view what);

}  // namespace qft::encode

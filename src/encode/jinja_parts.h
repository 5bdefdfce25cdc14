// Pieces of the Jinja templates that template_to_jinja.cpp writes. Private to encode.
#pragma once

#include <string>
#include <string_view>

#include "tool_format.h"

namespace qft::encode {

/// A text as a Jinja literal, which Python and llama.cpp read alike.
std::string jinja_literal(std::string_view text);
/// A statement that writes the text; "" for an empty one.
std::string jinja_write(std::string_view text);

/// Macros by which a tool format describes tools and writes calls: describe_tools(tools) and write_calls(calls).
std::string jinja_tool_macros(const ToolFormat& format);

}  // namespace qft::encode

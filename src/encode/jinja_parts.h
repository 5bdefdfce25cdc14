// Building blocks of the Jinja templates that template_to_jinja.cpp writes. Private to encode.
#pragma once

#include <string>
#include <string_view>

#include "tool_format.h"

namespace qft::encode {

/// Writes a text as a Jinja literal that Python and llama.cpp read alike.
std::string jinja_literal(std::string_view text);
/// Returns a statement that writes the text; "" for an empty text.
std::string jinja_write(std::string_view text);

/// Returns macros that describe tools and write calls in a tool format: describe_tools(tools) and write_calls(calls).
std::string jinja_tool_macros(const ToolFormat& format);

}  // namespace qft::encode

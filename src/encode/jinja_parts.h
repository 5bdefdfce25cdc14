// Building blocks of the Jinja templates that template_to_jinja.cpp writes, and defaults for variables of a template. Private to
// encode.
#pragma once

#include "qft/encode/chat_template.h"

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

/// Puts statements before `jinja` that set the variables of `options`, and the system message of conversations without one.
/// Returns `jinja` unchanged if there is nothing to set.
std::string with_defaults(const std::string& jinja, const TemplateOptions& options);

}  // namespace qft::encode

// How tools are described in the system message and how calls are written in an answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "python_json.h"

namespace qft::encode {

struct FunctionCall {
  Json name;
  Json arguments;
};

struct ToolFormat {
  std::string_view name;
  std::string_view prompt;     // with {tools}, and {names} where it lists them
  std::string_view separator;  // between the tools' texts
  /// One tool's text in {tools}. Throws Error where the description lacks what the format shows.
  std::string (*describe)(const Json& tool);
  std::string (*write_calls)(const std::vector<FunctionCall>& calls);

  /// The text appended to the system message for a JSON list of tools; "" for an empty list. Throws Error.
  std::string describe_tools(std::string_view tools_json) const;
  /// Everything that shapes its texts, for hashes.
  std::string description() const;
};

/// Throws ConfigError naming the formats there are.
const ToolFormat& find_tool_format(std::string_view name);

/// Calls from the JSON of a function message: an object or a list of objects with name and arguments.
/// Throws Error.
std::vector<FunctionCall> parse_calls(std::string_view json);

}  // namespace qft::encode

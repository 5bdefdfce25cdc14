// How tools are described in the system message and how calls are written in an answer.
#pragma once

#include "qft/encode/conversation.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

struct ToolFormat {
  std::string_view name;
  std::string_view prompt;        // with {tools}, and {names} where it lists them
  std::string_view separator;     // between the tools' texts
  std::string_view before_calls;  // between a text and the calls behind it
  /// One tool's text in {tools}. Throws Error where the description lacks what the format shows.
  std::string (*describe)(const Json& tool);
  std::string (*write_calls)(const std::vector<Call>& calls);

  /// The text appended to the system message for a list of tools; "" for an empty list. Throws Error.
  std::string describe_tools(const Json& tools) const;
  /// Everything that shapes its texts, for hashes.
  std::string description() const;
};

/// Throws ConfigError naming the formats there are.
const ToolFormat& find_tool_format(std::string_view name);

}  // namespace qft::encode

// Formats for tool descriptions in the system message and for calls in an answer.
#pragma once

#include "qft/encode/conversation.h"

#include <string>
#include <string_view>
#include <vector>

namespace qft::encode {

struct ToolFormat {
  std::string_view name;
  std::string_view prompt;        // contains {tools}, and {names} if the format lists them
  std::string_view separator;     // between the tools' texts
  std::string_view before_calls;  // between a text and the calls after it
  /// Returns one tool's text for {tools}. Throws Error if the description lacks a part that the format shows.
  std::string (*describe)(const Json& tool);
  std::string (*write_calls)(const std::vector<Call>& calls);

  /// Returns the text that is appended to the system message; "" for an empty list. Throws Error.
  std::string describe_tools(const Json& tools) const;
  /// Describes everything that affects the texts, for hashes.
  std::string description() const;
};

/// Throws ConfigError that lists the formats.
const ToolFormat& find_tool_format(std::string_view name);

}  // namespace qft::encode

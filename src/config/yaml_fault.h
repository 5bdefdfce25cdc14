// Explains syntax errors in YAML so that a person can correct them.
#pragma once

#include <string>
#include <string_view>

namespace qft::config {

struct YamlFault {
  int line = 1, column = 1;
  std::string what;
};

/// Explains why the parser stopped at `line` and `column` (from 1). `reason` is the parser's message.
YamlFault find_yaml_fault(std::string_view text, int line, int column, std::string_view reason);

/// True if the quoted text that begins at `line` and `column` has a closing quote.
bool is_quote_closed(std::string_view text, int line, int column);

}  // namespace qft::config

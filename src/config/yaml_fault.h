// What is wrong with a text that is no YAML, said so that a person can mend it.
#pragma once

#include <string>
#include <string_view>

namespace qft::config {

struct YamlFault {
  int line = 1, column = 1;
  std::string what;
};

/// The parser gave up at `line` and `column` (from 1) for `reason`, in its own words.
YamlFault find_yaml_fault(std::string_view text, int line, int column, std::string_view reason);

/// Whether the text in quotes that begins at `line` and `column` has its closing quote.
bool is_quote_closed(std::string_view text, int line, int column);

}  // namespace qft::config

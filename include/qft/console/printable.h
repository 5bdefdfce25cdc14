// Removes characters that control a terminal.
#pragma once

#include <string>
#include <string_view>

namespace qft::console {

/// Returns the text without control characters other than tabs and \n, and without bytes that are not UTF-8.
std::string printable(std::string_view text);

}  // namespace qft::console

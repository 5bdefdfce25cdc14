// Texts that change nothing of a terminal but its characters.
#pragma once

#include <string>
#include <string_view>

namespace qft::console {

/// Without control characters other than tabs and \n, and without bytes that are no UTF-8.
std::string printable(std::string_view text);

}  // namespace qft::console

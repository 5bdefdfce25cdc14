// Text of a data set, fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace qft::pack {

/// `text` (UTF-8) with control characters other than line ends and tabs as their Unicode pictures (U+2400 ..).
std::string printable(std::string_view text);

}  // namespace qft::pack

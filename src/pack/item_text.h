// Makes a dataset's text fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace qft::pack {

/// Returns `text` (UTF-8) with control characters, except line ends and tabs, as Unicode pictures (U+2400 ..).
std::string printable(std::string_view text);

}  // namespace qft::pack

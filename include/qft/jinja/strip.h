// Blank characters as templates see them.
#pragma once

#include <string_view>

namespace qft::jinja {

/// Python's str.strip(), which Jinja's trim is: `text`, in UTF-8, without blank characters at its ends.
std::string_view strip_blanks(std::string_view text);

}  // namespace qft::jinja

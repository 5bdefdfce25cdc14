// Strips blank characters as templates do.
#pragma once

#include <string_view>

namespace qft::jinja {

/// Python's str.strip(), which is also Jinja's trim: returns `text`, in UTF-8, without blank characters at its ends.
std::string_view strip_blanks(std::string_view text);

}  // namespace qft::jinja

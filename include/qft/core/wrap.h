// Text for a terminal of some width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft {

/// The columns of the terminal behind the file descriptor; 100 if it is no terminal.
int terminal_columns(int descriptor);

/// `text` in lines of at most `width` characters, broken at blanks; all lines but the first begin with `indent` blanks. A word
/// that is longer stays whole. Without a final newline.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace qft

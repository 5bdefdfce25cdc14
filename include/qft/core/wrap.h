// Wraps text to a terminal's width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft {

/// Returns the columns of the terminal behind the file descriptor; 100 if it is not a terminal or is 20 columns or narrower.
int terminal_columns(int descriptor);

/// Returns `text` in lines of at most `width` characters, broken at blanks; all lines but the first begin with `indent` blanks.
/// A longer word stays whole. No final newline.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace qft

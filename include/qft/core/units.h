// Formats numbers for logs and reports, and wraps text to a terminal's width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft {

/// Returns "1:02:03" or "02:03" for a number of seconds; "-" if it is negative or not finite.
std::string format_duration(double seconds);
/// Returns for example "1.53 GB", "12.00 MB", "312 B" (decimal units).
std::string format_bytes(double bytes);
/// Returns for example "139.35 M", "2.10 K", "312" (decimal units).
std::string format_count(double count);
/// Returns for example "1 step", "2 steps". The noun's plural must end in s.
std::string count_noun(std::int64_t count, std::string_view noun);
/// Returns `value`, but clears the sign of a NaN: the sign means nothing and would be printed.
double unsigned_nan(double value);

/// Returns the columns of the terminal behind the file descriptor; 100 if it is not a terminal or is 20 columns or narrower.
int terminal_columns(int descriptor);

/// Returns `text` in lines of at most `width` characters, broken at blanks; all lines but the first begin with `indent` blanks.
/// A longer word stays whole. No final newline.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width);

}  // namespace qft

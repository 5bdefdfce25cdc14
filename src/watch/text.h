// Formats texts for a terminal. Private to watch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::watch {

/// Returns the columns that a text occupies: its characters without escape sequences.
std::size_t columns_of(std::string_view text);

/// Replaces control characters (ASCII and Unicode's from U+0080, where U+009B begins an escape sequence) and broken UTF-8,
/// because names from files may contain anything.
std::string plain(std::string_view text);

/// Truncates to `width` columns.
std::string cut(const std::string& text, int width);

/// Truncates or pads with spaces to exactly `width` columns.
std::string padded(const std::string& text, int width);

}  // namespace qft::watch

// Texts on a terminal. Private to watch.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::watch {

/// Columns that a text takes: characters, without the escape sequences among them.
std::size_t columns_of(std::string_view text);

/// Names from files may hold anything: no control character reaches the terminal, be it one of ASCII or of those that Unicode has
/// at U+0080 (U+009B begins an escape sequence), and no half of a UTF-8 character.
std::string plain(std::string_view text);

/// At most `width` columns.
std::string cut(const std::string& text, int width);

/// Just `width` columns: cut, or with spaces behind it.
std::string padded(const std::string& text, int width);

}  // namespace qft::watch

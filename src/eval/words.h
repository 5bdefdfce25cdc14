// Converts text to characters, and to words as rouge-chinese counts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

/// Invalid UTF-8 bytes become U+FFFD.
std::u32string code_points(std::string_view utf8);

/// True for the characters at which Python's str.split() splits.
bool is_space(char32_t c);

/// Returns the words as rouge-chinese counts them: joins the WordCutter's words with spaces, cuts the text into sentences and
/// splits these at white space; a sentence of only white space is an empty word.
std::vector<std::u32string> sentence_words(const std::vector<std::u32string>& words);

}  // namespace qft::eval

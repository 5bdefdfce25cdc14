// Characters of a text, and its words as rouge-chinese counts them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

/// Bytes that are no UTF-8 count as U+FFFD.
std::u32string code_points(std::string_view utf8);

/// What Python's str.split() parts words at.
bool is_space(char32_t c);

/// The words of a WordCutter as rouge-chinese counts them: joined with spaces, cut into sentences, and these at white space;
/// a sentence of white space alone is an empty word.
std::vector<std::u32string> sentence_words(const std::vector<std::u32string>& words);

}  // namespace qft::eval

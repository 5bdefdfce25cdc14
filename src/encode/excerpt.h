// Excerpts of texts for messages, cut between characters and quoted as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::encode {

struct Excerpt {
  std::string quoted;
  bool cut_before = false, cut_after = false;  // text was cut at this end
};

/// Returns up to `before` bytes before byte `at` of a text and up to `behind` bytes after it, extended to whole characters.
Excerpt excerpt_around(std::string_view text, std::size_t at, std::size_t before, std::size_t behind);

/// Returns the first byte at which two texts differ; the shorter one's size if it is a prefix of the other.
std::size_t first_mismatch(std::string_view a, std::string_view b);

}  // namespace qft::encode

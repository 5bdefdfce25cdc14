// Parts of texts for messages, cut between characters and in quotes as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::encode {

struct Excerpt {
  std::string quoted;
  bool begins_later = false, ends_earlier = false;  // the text goes on there
};

/// Up to so many bytes before byte `at` of a text and behind it, and what belongs to the characters at both ends.
Excerpt excerpt_around(std::string_view text, std::size_t at, std::size_t before, std::size_t behind);

/// The first byte in which two texts differ; the size of the shorter one where it begins the other.
std::size_t differ_at(std::string_view a, std::string_view b);

}  // namespace qft::encode

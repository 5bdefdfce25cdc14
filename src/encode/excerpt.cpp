#include "excerpt.h"

#include "qft/core/python_json.h"

#include <algorithm>

namespace qft::encode {

Excerpt excerpt_around(std::string_view text, std::size_t at, std::size_t before, std::size_t behind) {
  std::size_t begin = at > before ? at - before : 0, end = std::min(text.size(), at + behind);
  const auto continues = [&](std::size_t i) { return i < text.size() && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (begin > 0 && continues(begin)) --begin;
  while (continues(end)) ++end;
  return {dump_python_json(Json(std::string(text.substr(begin, end - begin)))), begin > 0, end < text.size()};
}

std::size_t first_mismatch(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace qft::encode

#include "qft/core/repeated.h"

#include <fmt/format.h>

namespace qft {

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string describe_repeated(std::string_view object, std::string_view key, std::string_view first, std::string_view second) {
  return fmt::format("the key '{}' appears twice in {}, as {} and as {}: remove one", key,
                     object.empty() ? "one object" : fmt::format("'{}'", object), first, second);
}

}  // namespace qft

#include "thought.h"

#include <algorithm>

namespace qft::encode {

std::string_view stripped(std::string_view text, std::string_view blank) {
  const std::size_t first = text.find_first_not_of(blank);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blank) + 1 - first);
}

std::optional<ThoughtAndText> split_thought(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t end = text.find(close);
  if (end == text.npos) return std::nullopt;
  std::string_view thought = text.substr(0, end);
  if (const std::size_t begin = thought.find(open); begin != thought.npos) {
    if (!stripped(thought.substr(0, begin)).empty()) return std::nullopt;
    thought.remove_prefix(begin + open.size());
  }
  std::string_view rest = text.substr(end + close.size());
  rest.remove_prefix(std::min(rest.find_first_not_of('\n'), rest.size()));
  return ThoughtAndText{stripped(thought).empty() ? std::string_view() : stripped(thought, "\n"), rest};
}

}  // namespace qft::encode

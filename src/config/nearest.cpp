#include "qft/config/nearest.h"

#include "qft/core/error.h"

#include <algorithm>
#include <vector>

namespace qft::config {
namespace {

// Optimal string alignment distance (Levenshtein with swaps of neighbours), with three rows of the table in memory.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t least = (word.size() < 4 ? 1 : std::max<std::size_t>(2, word.size() / 3)) + 1;
  if (word.size() > 100) return best;
  for (const std::string_view name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> names, std::string_view otherwise) {
  const std::string_view name = nearest(word, names);
  return name.empty() ? fmt::format(": {}", otherwise) : fmt::format(": did you mean '{}'?", name);
}

}  // namespace qft::config

// Characters as a person sees them: grapheme clusters, and how many columns a terminal gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qft::console {

struct Cluster {
  std::size_t end = 0;  ///< of its bytes
  int columns = 0;
};

/// A code point, and where the next one begins. A byte that is not UTF-8 is kNoPoint.
struct Point {
  std::int32_t value = 0;
  std::size_t end = 0;
};
inline constexpr std::int32_t kNoPoint = -1;
Point point_at(std::string_view text, std::size_t at);

/// The cluster of a text in UTF-8 that begins at byte `begin`, which is less than its size.
Cluster cluster_at(std::string_view text, std::size_t begin);
/// Where the cluster before byte `end` begins; `end` is more than 0.
std::size_t cluster_before(std::string_view text, std::size_t end);

}  // namespace qft::console

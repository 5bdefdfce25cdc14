// Characters as a person sees them: grapheme clusters, and how many columns a terminal gives them.
#pragma once

#include <cstddef>
#include <string_view>

namespace qft::console {

struct Cluster {
  std::size_t end = 0;  ///< of its bytes
  int columns = 0;
};

/// The cluster of a text in UTF-8 that begins at byte `begin`, which is less than its size.
Cluster cluster_at(std::string_view text, std::size_t begin);
/// Where the cluster before byte `end` begins; `end` is more than 0.
std::size_t cluster_before(std::string_view text, std::size_t end);

}  // namespace qft::console

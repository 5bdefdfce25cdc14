// The sizes of a micro-batch that memory, scratch and time depend on.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qft {

/// The sizes of one micro-batch, or the largest of each size over several. 0: unknown.
struct BatchShape {
  std::int64_t tokens = 0;     ///< rows that are computed: tokens, or fewer if sequences share rows
  std::int64_t labels = 0;     ///< unknown: every token may be a label
  std::int64_t sequences = 0;  ///< unknown: one
  std::int64_t longest = 0;    ///< tokens of the longest sequence; unknown: twice the average
  std::int64_t padded = 0;     ///< tokens if each sequence were as long as the longest one; unknown: sequences * longest
  std::int64_t expanded = 0;   ///< tokens of all sequences if they share rows; 0: they share none

  std::int64_t num_sequences() const { return std::max<std::int64_t>(1, sequences); }
  std::int64_t num_labels() const { return labels > 0 ? std::min(labels, tokens) : tokens; }
};

}  // namespace qft

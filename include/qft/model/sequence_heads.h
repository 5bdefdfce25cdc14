// How context ranks share heads. Each has some rows of a micro-batch, and for attention or the gated delta rule all rows of some
// heads (model/head_exchange.h).
#pragma once

#include "qft/model/share.h"

#include <cstdint>
#include <vector>

namespace qft::model {

/// The heads with which a context rank computes whole sequences, counted from its tensor rank's first head.
struct SequenceHeads {
  Extent heads = {};
  /// The key head of each run of heads. Runs are equally long. A key head comes again if it serves more than one run.
  std::vector<std::int64_t> key_heads = {};

  std::int64_t num_key_heads() const { return static_cast<std::int64_t>(key_heads.size()); }
  /// Returns the elements of a row with `width` elements for each head, or for each key head.
  std::int64_t columns(std::int64_t width, bool of_keys) const { return width * (of_keys ? num_key_heads() : heads.count); }
};

/// Workspace name of a rank's rows of all ranks' heads, while they are exchanged.
inline constexpr const char* kExchangedHeads = "exchanged_heads";

/// The heads of a tensor rank, divided among context ranks.
struct SequenceShare {
  std::vector<SequenceHeads> ranks = {};  ///< by context rank; empty: each rank has whole sequences of all heads
  int rank = 0;                           ///< this one
  bool repeats_keys = false;              ///< some key head has several runs

  bool any() const { return !ranks.empty(); }
  /// Returns the elements of a row of all ranks' heads, with these for each head and each key head.
  std::int64_t columns_of_all(std::int64_t width, std::int64_t key_width) const;
  const SequenceHeads& mine() const { return ranks[static_cast<std::size_t>(rank)]; }

  /// Divides heads as evenly as possible; the first ranks have more. `context.ranks` is 1: any() is false. Else there must be at
  /// least as many heads as ranks. Key heads need not divide: a rank gets copies of those that its heads use.
  static SequenceShare split(std::int64_t heads, std::int64_t key_heads, Share context);
};

}  // namespace qft::model

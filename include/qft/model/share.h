// How the tensor ranks share a model's matrices: each computes with some heads, some inner columns and some rows of the
// vocabulary. Nothing is padded: the first ranks have more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qft::model {

/// This rank among the tensor ranks.
struct Share {
  int rank = 0, ranks = 1;
};

/// The elements [begin, begin + count) of a dimension.
struct Extent {
  std::int64_t begin = 0, count = 0;
  std::int64_t end() const { return begin + count; }
  bool operator==(const Extent&) const = default;
};

/// Deals a dimension out as evenly as possible, in granules of which the last may be shorter. Returns this rank's elements.
/// Throws ConfigError if there are fewer granules than ranks; it names the dimension as `what`.
Extent deal(std::int64_t extent, std::int64_t granule, Share share, const std::string& what);

/// A dimension of a tensor, of which a rank holds pieces, one after the other.
struct Cut {
  std::int64_t whole = 0;      ///< elements of the dimension
  std::vector<Extent> pieces;  ///< this rank's, ascending
  std::int64_t largest = 0;    ///< elements on rank 0, which has most
  int holders = 0;             ///< neighbouring ranks that hold the same pieces; 0: every rank holds all elements

  /// Returns how many elements this rank holds.
  std::int64_t count() const;
  bool is_cut() const { return holders > 0; }
  /// Returns the cut of a dimension with one element for each `block` elements of this one. All pieces must be multiples of it.
  Cut in_blocks(std::int64_t block) const;

  /// Every rank holds all elements.
  static Cut none(std::int64_t whole);
  /// Deals the dimension out as deal() does.
  static Cut dealt(std::int64_t whole, std::int64_t granule, Share share, const std::string& what);
  /// Dimensions that lie one after the other in one tensor. The same ranks hold the same pieces of each.
  static Cut joined(const std::vector<Cut>& cuts);
};

/// The heads that a rank computes with.
struct HeadShare {
  Extent heads;      ///< attention: of queries; delta net: of values
  Extent key_heads;  ///< attention: of keys and values; delta net: of keys and queries
  int holders = 1;   ///< neighbouring ranks that compute with these key heads, each for some of the heads that these serve
  int holder = 0;    ///< this rank among them
};

/// The heads of a sub-layer. Each key head serves the same number of consecutive heads.
struct Heads {
  std::string what = {};  ///< in errors: "the 6 query heads and 2 key and value heads of model.layers.0.self_attn"
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t granule = 1;       ///< key heads are dealt in this number, each with the heads that it serves
  std::int64_t head_granule = 1;  ///< if several ranks hold a key head, its heads are dealt in this number; 0: none can

  std::int64_t per_key_head() const { return key_heads > 0 ? heads / key_heads : 0; }
  /// True if this many ranks can share the heads: each has some key heads with all heads that these serve or, with fewer key
  /// heads than ranks, the same number of neighbours hold each key head and share the heads that it serves.
  bool fits(int ranks) const;
  /// Returns the heads of a rank. Throws ConfigError if they do not fit.
  HeadShare deal(Share share) const;
  /// Returns the cut of a dimension with `width` elements for each head, or for each key head.
  Cut cut(Share share, std::int64_t width) const;
  Cut key_cut(Share share, std::int64_t width) const;
};

}  // namespace qft::model

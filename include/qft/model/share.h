// How tensor ranks share a model's matrices. Each rank computes with some of the heads, some inner columns of the feed-forward
// and some rows of the vocabulary. If they do not divide evenly, the first ranks have more; nothing is padded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qft::model {

/// A rank's number among the ranks that share matrices, or among those that share sequences.
struct Share {
  int rank = 0, ranks = 1;
  /// Returns how many of a micro-batch's rows each rank has room for between sub-layers (RowSharing).
  std::int64_t room(std::int64_t rows) const { return (rows + ranks - 1) / ranks; }
};

/// The elements [begin, begin + count) of a dimension.
struct Extent {
  std::int64_t begin = 0, count = 0;
  std::int64_t end() const { return begin + count; }
  bool operator==(const Extent&) const = default;
};

/// Divides a dimension of `extent` elements as evenly as possible among the ranks. Each `granule` consecutive elements stay
/// together; the last granule may be shorter. Returns this rank's elements, at least one granule. Throws ConfigError if there are
/// fewer granules than ranks; `what` names the dimension in the message.
Extent split(std::int64_t extent, std::int64_t granule, Share share, const std::string& what);

/// A dimension of a tensor, and the pieces of it that this rank holds. The rank's tensor has them one after the other.
struct Cut {
  std::int64_t whole = 0;      ///< elements of the dimension
  std::vector<Extent> pieces;  ///< this rank's, ascending
  std::int64_t largest = 0;    ///< elements on rank 0, which has most
  int holders = 0;             ///< consecutive ranks that hold the same pieces; 0: not cut, every rank holds all elements

  /// Returns how many elements this rank holds.
  std::int64_t count() const;
  bool is_cut() const { return holders > 0; }
  /// Returns the cut of a dimension with one element for each `block` elements of this one. Each piece must begin and end at a
  /// multiple of `block`.
  Cut in_blocks(std::int64_t block) const;

  /// Returns a dimension that is not cut: every rank holds all elements.
  static Cut none(std::int64_t whole);
  /// Returns the cut of which each rank holds the elements that split() gives it; one rank: not cut. Throws as split() does.
  static Cut split(std::int64_t whole, std::int64_t granule, Share share, const std::string& what);
  /// Returns the cut of a dimension that consists of these, one after the other. All must have the same `holders`.
  static Cut joined(const std::vector<Cut>& cuts);
};

/// The heads that a rank computes with.
struct HeadShare {
  Extent heads;      ///< attention: of queries; delta net: of values
  Extent key_heads;  ///< attention: of keys and values; delta net: of keys and queries
  int holders = 1;   ///< consecutive ranks that compute with these key heads, each with some of the heads that they serve
  int holder = 0;    ///< this rank among them
};

/// The heads of a sub-layer. Each key head serves the same number of consecutive heads.
struct Heads {
  std::string what = {};  ///< in errors: "the 6 query heads and 2 key and value heads of model.layers.0.self_attn"
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t granule = 1;       ///< key heads that stay together, each with the heads that it serves
  std::int64_t head_granule = 1;  ///< heads that stay together if several ranks hold a key head; 0: only one rank can hold it

  std::int64_t per_key_head() const { return key_heads > 0 ? heads / key_heads : 0; }
  /// True if this many ranks can share the heads. With at least as many key heads as ranks, each rank has some key heads and all
  /// heads that they serve. With fewer, `ranks` must be a multiple of the key heads: the same number of consecutive ranks hold
  /// each key head and share the heads that it serves.
  bool fits(int ranks) const;
  /// Returns the heads of a rank. Throws ConfigError if they do not fit, with the largest number of ranks below that
  /// does.
  HeadShare split(Share share) const;
  /// Returns the heads of the rank that has fewest, of `ranks` ranks that fit.
  std::int64_t fewest(int ranks) const;
  /// Return the cut of a dimension with `width` elements for each head, or for each key head. Throw as split() does.
  Cut cut(Share share, std::int64_t width) const;
  Cut key_cut(Share share, std::int64_t width) const;
};

}  // namespace qft::model

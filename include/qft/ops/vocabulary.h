// A vocabulary that several ranks share: each holds the rows of consecutive tokens of the embedding and of the head.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// The tokens whose rows this rank holds: [first, first + rows of the table). The default is the whole vocabulary.
struct VocabularyPart {
  /// Reduces a contiguous fp32 or fp64 tensor in place over all parts. Collective: every rank calls the same reductions in the
  /// same order with the same shapes, and gets the same bits.
  using Reduce = std::function<void(const at::Tensor& t)>;

  std::int64_t first = 0;  ///< token of the first row
  std::int64_t whole = 0;  ///< tokens of the whole vocabulary; not read if this rank holds it all
  std::int64_t part = 0;   ///< this rank's part; parts are in the order of their tokens, and none is empty
  std::int64_t parts = 1;  ///< more than 1: `add` and `maximum` must be set
  Reduce add = {};         ///< sum
  Reduce maximum = {};     ///< maximum of each element

  bool shared() const { return parts > 1; }
  /// Returns the tokens of the whole vocabulary, if this rank's part of it has `rows`.
  std::int64_t tokens(std::int64_t rows) const { return shared() ? whole : rows; }
};

}  // namespace qft::ops

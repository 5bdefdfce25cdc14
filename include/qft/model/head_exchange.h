// The exchange of context ranks around attention and the gated delta rule (Jacobs et al. 2023: DeepSpeed-Ulysses): an all-to-all
// turns a rank's rows of all heads into all rows of some heads, and back.
#pragma once

#include "qft/model/row_sharing.h"
#include "qft/model/sequence_heads.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// Heads of this rank's rows: [rows, heads or key heads, width], any strides.
struct RowsOfHeads {
  at::Tensor rows;
  bool of_keys = false;
};

/// Exchanges for one pass, on the device in stream order. Both functions are collective over the context ranks.
class HeadExchange {
 public:
  /// `context`: the context ranks; each has the rows that RowSharing gives it of `rows`. All must outlive this object.
  HeadExchange(const SequenceShare& share, const RowSharing& context, std::int64_t rows, ops::Workspace& workspace);

  /// Fills `whole` [rows, columns] contiguous: from each part in turn, this rank's heads of all rows.
  void to_sequences(std::span<const RowsOfHeads> parts, const at::Tensor& whole) const;
  /// Fills the parts from every rank's `whole`. If several ranks have a copy of a key head, adds up their values: they are
  /// gradients.
  void to_rows(const at::Tensor& whole, std::span<const RowsOfHeads> parts) const;

 private:
  /// Calls f(heads of a part's rows, their place in the packed rows [rows here, heads, width], the part) for each rank and part.
  template <class F>
  void for_each_place(std::span<const RowsOfHeads> parts, const at::Tensor& packed, const F& f) const;
  at::Tensor packed(std::span<const RowsOfHeads> parts) const;
  std::vector<std::int64_t> packed_counts(std::span<const RowsOfHeads> parts) const;
  std::vector<std::int64_t> whole_counts(const at::Tensor& whole) const;

  const SequenceShare& share_;
  const RowSharing& context_;
  std::int64_t rows_;
  ops::Workspace& workspace_;
};

}  // namespace qft::model

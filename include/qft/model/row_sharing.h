// The rows of a micro-batch, divided among ranks. Context ranks divide all rows, and the tensor ranks of each divide its rows.
// Between sub-layers each rank holds some consecutive rows. For a sub-layer the tensor ranks gather all rows (all-gather), and
// each computes a term of every row with its part of the matrices. Then the terms are added up, and each rank gets its own rows
// of the sum (reduce-scatter). Context ranks exchange heads instead (model/head_exchange.h).
#pragma once

#include "qft/comm/communicator.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// The rows [first, first + count) of a micro-batch that a rank holds, in buffers of `room` rows. The buffers' rows behind
/// `count` are zero. `room` is equal on all ranks; the last ranks may have no rows.
struct OwnRows {
  std::int64_t first = 0, count = 0, room = 0;

  /// All rows of a micro-batch, on a rank that shares them with no other.
  static OwnRows whole(std::int64_t rows) { return {0, rows, rows}; }
  std::int64_t end() const { return first + count; }
  /// These rows of a tensor [rows, ...] of the micro-batch.
  at::Tensor of(const at::Tensor& rows) const { return rows.defined() ? rows.narrow(0, first, count) : rows; }
  /// The rows without the zeros of a buffer [room, ...].
  at::Tensor filled(const at::Tensor& buffer) const { return buffer.narrow(0, 0, count); }
  /// Sets the rows behind `count` of a buffer [room, ...] to zero.
  void clear_rest(const at::Tensor& buffer) const;
};

/// Exchanges rows among the tensor ranks or the context ranks, on the device in stream order. A rank alone holds all rows and
/// never exchanges. Tensors are contiguous. Copies are cheap and share the communicator, which must outlive them.
/// all_gather(), reduce_scatter(), all_to_all(), sum() and max() are collective.
class RowSharing {
 public:
  RowSharing() = default;
  explicit RowSharing(comm::Communicator& ranks);

  /// True if no other rank shares the rows.
  bool alone() const { return ranks_ == nullptr; }
  int rank() const { return alone() ? 0 : ranks_->rank(); }
  int ranks() const { return alone() ? 1 : ranks_->size(); }

  /// Returns the rows that this rank, or `rank`, holds of a micro-batch with `rows` rows.
  OwnRows rows_of(std::int64_t rows) const { return rows_of(rows, rank()); }
  OwnRows rows_of(std::int64_t rows, int rank) const;
  /// Returns how many rows a buffer for all_gather() has: the room of all ranks together, at least `rows`.
  std::int64_t room_of_all(std::int64_t rows) const { return ranks() * rows_of(rows).room; }

  /// Fills all [room of all, ...] with every rank's own [room, ...].
  void all_gather(const at::Tensor& own, const at::Tensor& all) const;
  /// own [room, ...] = this rank's rows of the sum of `all` [room of all, ...] over the ranks. Only the first `rows` rows of
  /// `all` count; the others are overwritten with zeros.
  void reduce_scatter(const at::Tensor& all, std::int64_t rows, const at::Tensor& own) const;

  /// Returns how many of the ascending row numbers each rank has, for a micro-batch with `rows` rows.
  std::vector<std::int64_t> counts_of(std::span<const std::int32_t> numbers, std::int64_t rows) const;
  /// Fills all [sum of counts, ...] with the rows `own` [counts[r], ...] of each rank r, in rank order.
  void all_gather(const at::Tensor& own, std::span<const std::int64_t> counts, const at::Tensor& all) const;
  /// own [counts[rank()], ...] = this rank's rows of the sum of `all` over the ranks.
  void reduce_scatter(const at::Tensor& all, std::span<const std::int64_t> counts, const at::Tensor& own) const;

  /// Sends slice r of `from`, of from_counts[r] elements, to rank r; slice r of `to`, of to_counts[r] elements, comes from there.
  void all_to_all(const at::Tensor& from, std::span<const std::int64_t> from_counts, const at::Tensor& to,
                  std::span<const std::int64_t> to_counts) const;

  /// Replaces a contiguous tensor, on the device or in host memory, by its sum or its largest values over the ranks.
  void sum(const at::Tensor& values) const;
  void max(const at::Tensor& values) const;

  /// Returns the seconds that the host has spent in exchanges, in all copies together.
  double seconds() const { return alone() ? 0.0 : *seconds_; }

 private:
  void reduce(const at::Tensor& values, comm::ReduceOp op) const;

  comm::Communicator* ranks_ = nullptr;  ///< nullptr: alone
  std::shared_ptr<double> seconds_;
};

}  // namespace qft::model

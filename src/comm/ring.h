// Bandwidth-optimal all-gather, reduce-scatter and all-reduce on a ring of point-to-point messages. Every link carries each slice
// once, even if several ranks share a node's link. Any thread can drive the steps.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "mpi_support.h"
#include <mpi.h>

namespace qft::comm {

/// A slice of the buffers, one per rank, in elements.
struct Slice {
  std::size_t source = 0;  ///< start in the send buffer
  std::size_t target = 0;  ///< start in the receive buffer
  std::size_t count = 0;
};

struct RingPlan {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  const void* send = nullptr;
  void* recv = nullptr;
  bool reduces = false;  ///< first phase: sums slice r of all ranks at rank r
  bool gathers = false;  ///< second phase: sends slice r from rank r to all ranks
  std::vector<Slice> slices;
};

/// Returns the elements of a slice in one message: the granularity at which transfers and additions overlap.
std::size_t ring_segment(DType dtype);
/// Returns the number of segments in a plan; each needs its own tag.
std::size_t ring_segments(const RingPlan& plan);

/// Schedules the gathers of one communicator. They open segments in launch order, few at a time, so the first gather completes
/// first, and other traffic, such as a reduction or a vote, waits for few bytes on a slow network. A gather that a thread waits
/// for opens its segments at once, in addition to the others. Thread-safe.
class GatherTurns {
 public:
  void join(const MpiWork* work);
  /// Returns whether `work` may open a segment, which then counts as open. Rethrows the failure of an earlier gather.
  bool take(const MpiWork* work);
  /// Reports counted segments as complete.
  void give_back(std::size_t segments);
  /// Reports that `work` has opened its last segment.
  void leave(const MpiWork* work);
  /// Reports that `work` opens no more segments, and that later gathers cannot follow it.
  void fail(const MpiWork* work, std::exception_ptr failure);

 private:
  std::mutex mutex_;
  std::deque<const MpiWork*> queue_;
  std::size_t open_ = 0;
  std::exception_ptr failure_;
};

/// Runs the plan with tags first_tag, first_tag + 1, ... modulo `tags`. A plan that only gathers waits for its turn in `turns`;
/// null if no thread drives the gathers before it.
std::shared_ptr<MpiWork> make_ring(RingPlan plan, int first_tag, int tags, const std::shared_ptr<GatherTurns>& turns);

}  // namespace qft::comm

// Bandwidth-optimal all-gather, reduce-scatter and all-reduce on a ring of point-to-point messages. Every
// link carries each slice once, also where several ranks share a node's link, and steps can be driven from any thread.
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
  std::size_t source = 0;  ///< where it starts in the send buffer
  std::size_t target = 0;  ///< where it starts in the receive buffer
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
  bool reduces = false;  ///< first phase: slice r of all ranks adds up at rank r
  bool gathers = false;  ///< second phase: slice r goes from rank r to all
  std::vector<Slice> slices;
};

/// Elements of one slice that travel as one message: the unit in which transfers and additions overlap.
std::size_t ring_segment(DType dtype);
/// Segments of a plan: each takes a tag of its own.
std::size_t ring_segments(const RingPlan& plan);

/// The gathers of one communicator, which open their segments in the order in which they were launched, few at a time: the first
/// is complete first, and what is sent meanwhile, a reduction or a vote, waits for few bytes on a slow wire. One that somebody
/// waits for opens its own at once, beside the others. Any thread.
class GatherTurns {
 public:
  void join(const MpiWork* work);
  /// Whether `work` may open a segment, which then counts. Throws what an earlier gather failed with.
  bool take(const MpiWork* work);
  /// Counted segments that are complete.
  void give_back(std::size_t segments);
  /// `work` has opened its last segment.
  void leave(const MpiWork* work);
  /// `work` will open no more, and later ones cannot follow it.
  void fail(const MpiWork* work, std::exception_ptr failure);

 private:
  std::mutex mutex_;
  std::deque<const MpiWork*> queue_;
  std::size_t open_ = 0;
  std::exception_ptr failure_;
};

/// Runs the plan with tags first_tag, first_tag + 1, ... modulo `tags`. A plan that only gathers waits for its turn among
/// `turns`; null where no thread drives those before it.
std::shared_ptr<MpiWork> make_ring(RingPlan plan, int first_tag, int tags, const std::shared_ptr<GatherTurns>& turns);

}  // namespace qft::comm

// Bandwidth-optimal all-gather, reduce-scatter and all-reduce on a ring of point-to-point messages. Every
// link carries each slice once, also where several ranks share a node's link, and steps can be driven from any thread.
#pragma once

#include <cstddef>
#include <memory>
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

/// Runs the plan with tags first_tag, first_tag + 1, ... modulo `tags`.
std::shared_ptr<MpiWork> make_ring(RingPlan plan, int first_tag, int tags);

}  // namespace qft::comm

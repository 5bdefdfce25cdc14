// The memory that one rank of a run needs, by its parts.
#pragma once

#include <cstdint>
#include <string>

namespace qft::plan {

/// Bytes of one rank. Each part has its peak value within a step.
struct MemoryPlan {
  std::int64_t weights = 0;      ///< kept between uses
  std::int64_t gathered = 0;     ///< gathered from other ranks or host memory, in use or prefetched
  std::int64_t gradients = 0;    ///< kept over the step, and in flight to their owners
  std::int64_t optimizer = 0;    ///< masters and optimizer state
  std::int64_t activations = 0;  ///< activations of all micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations, and of one recomputed layer
  std::int64_t reference = 0;    ///< everything of a reference with its own weights, gathered weights and rows included
  /// Subtracted: gathered weights, gradients and temporaries do not peak at the same time (device memory only).
  std::int64_t peak_overlap = 0;
  std::int64_t host = 0;  ///< offloaded to host memory; not in total()

  /// Returns the bytes allocated before the first step: exact, not an estimate.
  std::int64_t state() const { return weights + optimizer; }
  std::int64_t total() const {
    return weights + gathered + gradients + optimizer + activations + buffers + reference - peak_overlap;
  }
};

/// Returns "weights 1.2 GB, gathered 0.3 GB, ...": the nonzero parts, largest first.
std::string describe(const MemoryPlan& plan);

/// The most memory that a rank needs, in bytes, beyond its process.
struct Footprint {
  MemoryPlan memory;
  std::int64_t staged = 0;   ///< host copies of a checkpoint that is written while training continues
  std::int64_t kernels = 0;  ///< compiled products on the CPU
  std::int64_t needed = 0;   ///< the part in device memory; on the CPU everything
  std::int64_t on_host = 0;  ///< the part in host memory; on the CPU 0
};

}  // namespace qft::plan

// The gated delta rule on a device with our own kernels: division of sequences, and scratch memory.
#pragma once

#include "qft/ops/gated_delta.h"

#include <cstdint>
#include <vector>

#include "gated_delta_args_cuda.h"
#include <ATen/core/Tensor.h>

namespace qft::ops {

struct DeltaWork {
  std::vector<DeltaWave> waves;
  at::Tensor table;  ///< int32 on the device: all waves' DeltaChunk, then DeltaChain per sequence, then DeltaChain per segment
  std::int64_t chains_at = 0, segments_at = 0;  ///< offsets of the chains and segments in the table
  std::int64_t max_chunks = 0;                  ///< of the largest wave
  at::Tensor scratch;                           ///< fp32, for DeltaScratch
  bool backward = false;

  /// Divides the sequences in token order, uploads the table and allocates the scratch memory.
  DeltaWork(const PackedSequences& sequences, const DeltaShape& shape, c10::Device device, bool backward);
};

/// Maximum scratch bytes in DeltaWork, for sequences with `chunks` chunks in total.
std::int64_t delta_work_bytes(const DeltaShape& shape, std::int64_t chunks, bool backward);

}  // namespace qft::ops

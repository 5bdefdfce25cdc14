// The gated delta rule on a device with kernels of its own: how sequences are divided, and the memory for it.
#pragma once

#include "qft/ops/gated_delta.h"

#include <cstdint>
#include <vector>

#include "gated_delta_args.h"
#include <ATen/core/Tensor.h>

namespace qft::ops {

struct DeltaWork {
  std::vector<DeltaWave> waves;
  at::Tensor table;  ///< int32 on the device: DeltaChunk of all waves, then DeltaChain of sequences, of segments
  std::int64_t chains_at = 0, segments_at = 0;  ///< where these begin there
  std::int64_t most_chunks = 0;                 ///< of a wave
  at::Tensor scratch;                           ///< fp32, for DeltaScratch
  bool backward = false;

  /// In the order of the tokens; the table is uploaded, the memory allocated.
  DeltaWork(const PackedSequences& sequences, const DeltaShape& shape, c10::Device device, bool backward);
};

/// Bytes of DeltaWork's scratch at most, for sequences of together so many chunks.
std::int64_t delta_work_bytes(const DeltaShape& shape, std::int64_t chunks, bool backward);

}  // namespace qft::ops

// Chunks of the head's rows. Private to plan.
#pragma once

#include "qft/ops/head.h"
#include "qft/plan/run_plan.h"

namespace qft::plan {

/// Returns how many labels' rows of logits a rank computes at a time, at most. Ranks that share the vocabulary have equal chunks.
inline std::int64_t head_chunk_rows(const RunPlan& run) {
  return run.schedule.head_rows > 0 ? run.schedule.head_rows
                                    : ops::head_chunk_rows(run.spec->config.vocab_size, run.sharding.tensor_ranks);
}

}  // namespace qft::plan

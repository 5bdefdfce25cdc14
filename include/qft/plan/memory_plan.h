// Predicts a rank's memory from the action list that runs.
#pragma once

#include "qft/parallel/action.h"
#include "qft/plan/run_plan.h"

#include <cstdint>
#include <vector>

namespace qft::plan {

/// Returns the most partial gradient sums held at once while `micro_batches` are summed in a binary tree.
std::int64_t partial_sums(std::int64_t micro_batches);

/// Returns the elements of a buffer of `n` after padding to a multiple of `ranks`.
std::int64_t padded_numel(std::int64_t n, int ranks);

/// Returns the bytes that gathering each unit allocates.
std::vector<parallel::GatheredBytes> gathered_bytes(const RunPlan& run);

/// Returns the run's prefetch budget. Default: the bytes of the largest unit plus four layers; that many layers are computed while
/// the unit is gathered (for example a tied embedding, between forward and backward). `units`: gathered_bytes(run).
std::int64_t prefetch_budget(const RunPlan& run, const std::vector<parallel::GatheredBytes>& units);

/// Predicts the memory of one rank.
MemoryPlan plan_memory(const RunPlan& run);

/// Returns the plan of the forward passes of `run.reference_model`.
RunPlan reference_passes(const RunPlan& run);

/// Returns the bytes of copies that a rank holds while a checkpoint is written beside training: its masters and optimizer state
/// (unless Saving::model_only), and the tensors of the model or the adapter that it writes.
std::int64_t staged_bytes(const RunPlan& run);

}  // namespace qft::plan

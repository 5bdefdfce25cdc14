// The shapes of a run's micro-batches: besides the model, memory and time depend on them.
#pragma once

#include "qft/config/run_config.h"
#include "qft/loader/item_choice.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"
#include "qft/plan/work.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qft::plan {

/// One optimizer step of the rank with most compute.
struct StepShape {
  std::vector<MicroShape> micros;
  std::int64_t max_micro_batches = 0;   ///< micro-batches in the step, on the rank with most
  std::int64_t tokens = 0;              ///< of all ranks
  std::vector<MicroShape> before = {};  ///< seen only by forward passes before the step: the other answers of stage kto
};

/// A sample of a run's steps.
struct Workload {
  std::vector<StepShape> steps;  ///< at least one
  MicroShape largest;            ///< the maximum of each size over the run's micro-batches
  std::string description;       ///< the source of the lengths
  std::int64_t total_steps = 0;  ///< steps of the run; 0: unknown before packing
};

inline constexpr std::int64_t kSampledSteps = 8;

/// Builds a workload from the lengths of a pack's items (tokens[i], labels[i]) in the loader's order: up to `sample` steps,
/// evenly spaced. `item_sequences`: sequences of an item, assumed equally long. `shared`, `varying`: as in
/// batch_bounds().
Workload workload_of(const loader::StepSchedule& schedule, std::span<const std::int32_t> tokens,
                     std::span<const std::int32_t> labels, std::int64_t sample = kSampledSteps, std::int64_t item_sequences = 1,
                     std::span<const std::int32_t> shared = {}, const loader::ItemSequences& varying = {});

/// Builds the workload of the pack that the schedule was made from.
Workload workload_of(const loader::StepSchedule& schedule, const pack::PackReader& pack);

/// Returns an upper bound for a run without a pack: every sequence has cutoff_len tokens, every token is a label, and the
/// `item_sequences` sequences of an item share nothing.
Workload full_rows(const config::RunConfig& config, int data_ranks, int item_sequences = 1);

/// Returns the workload if only the first of an item's two sequences is trained, and the second one estimates the KL divergence.
Workload with_estimates(Workload workload);
/// Returns the workload with a forward pass over the whole step before each step.
Workload with_rewards(Workload workload);

/// Returns the workload with every micro-batch padded to its graph shape (parallel/layer_graphs.h).
Workload padded_to_graph_shapes(Workload workload);

}  // namespace qft::plan

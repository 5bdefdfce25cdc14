// The shapes of a run's micro-batches: what memory and time depend on besides the model.
#pragma once

#include "qft/config/run_config.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"
#include "qft/plan/work.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qft::plan {

/// One optimizer step of the rank that has most to compute.
struct StepShape {
  std::vector<MicroShape> micros;
  std::int64_t max_micro_batches = 0;   ///< micro-batches in the step of the rank that has most
  std::int64_t tokens = 0;              ///< of all ranks
  std::vector<MicroShape> before = {};  ///< what only forward passes before the step see: the other answers of stage kto
};

struct Workload {
  std::vector<StepShape> steps;  ///< a sample of the run's steps, at least one
  MicroShape largest;            ///< the most of each that any micro-batch of the run has
  std::string description;       ///< where the lengths come from
  std::int64_t total_steps = 0;  ///< of the run; 0: not known before the data is packed
};

inline constexpr std::int64_t kSampledSteps = 8;

/// From the lengths of a pack's items (tokens[i], labels[i]) as the loader deals them: up to `sample` steps, evenly spaced.
/// `item_sequences`: of an item, taken to be equally long. `shared`: as batch_bounds() takes it.
Workload workload_of(const loader::StepSchedule& schedule, std::span<const std::int32_t> tokens,
                     std::span<const std::int32_t> labels, std::int64_t sample = kSampledSteps, std::int64_t item_sequences = 1,
                     std::span<const std::int32_t> shared = {});

/// Of a pack that the schedule was made from.
Workload workload_of(const loader::StepSchedule& schedule, const pack::PackReader& pack);

/// Where there is no pack yet: every sequence as long as cutoff_len, every token a label, and so many sequences in an item, which
/// have nothing in common. An upper bound.
Workload full_rows(const config::RunConfig& config, int ranks, int item_sequences = 1);

/// The same where only the first of an item's two sequences is trained, and the second estimates the KL divergence.
Workload with_estimates(Workload workload);
/// The same where a forward pass over the whole step goes before it.
Workload with_rewards(Workload workload);

/// The same with every micro-batch padded to its graph shape (parallel/graph_shape.h).
Workload padded_to_graph_shapes(Workload workload);

}  // namespace qft::plan

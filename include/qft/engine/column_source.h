// Sources fill columns of micro-batches, and named totals of the batch, before the step; the objective reads them. A reference
// model, stored log-probabilities and KTO's KL divergence are sources; a teacher or a rollout would be sources too.
#pragma once

#include "qft/loader/loader.h"
#include "qft/model/transformer.h"
#include "qft/parallel/groups.h"
#include "qft/parallel/objective.h"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

namespace qft::engine {

/// A mean over the steps so far. Same as TRL's RunningMoments with one update per step.
struct RunningMean {
  double mean = 0.0;
  std::int64_t steps = 0;

  /// Returns the mean after one more step with `value`.
  RunningMean with(double value) const { return {mean + (value - mean) / static_cast<double>(steps + 1), steps + 1}; }
  bool operator==(const RunningMean&) const = default;
};

/// State of sources between steps, by name. Saved with the training state.
struct SourceState {
  std::map<std::string, RunningMean, std::less<>> means = {};
  bool operator==(const SourceState&) const = default;
};

/// Adds the state to the JSON of a run's progress, and reads it from there. A mean that is missing has no steps.
void write_state(const SourceState& state, nlohmann::json& progress);
SourceState source_state_from_json(const nlohmann::json& progress);

/// Micro-batches of this rank.
struct SourceBatch {
  std::span<const loader::MicroBatch> batches;
  std::int64_t rounds = 0;  ///< micro-batches of the rank that has most
  std::int64_t first = 0;   ///< number of the first one among all ranks' micro-batches
  std::uint64_t step = 0;   ///< of the training; unused in evaluations

  /// Returns the same part of the batch with other contents.
  SourceBatch of(std::span<const loader::MicroBatch> others) const { return {others, rounds, first, step}; }
};

/// All functions are collective. A source overrides fill() if it fills columns, the others if it computes totals.
class ColumnSource {
 public:
  /// Returns the trained sequences of the batch as inputs, with the reference's columns. Builds them at the first call.
  using Inputs = std::function<std::span<const model::MicroInput>()>;

  virtual ~ColumnSource() = default;
  /// Fills columns in `micros`; micros[i] was made of batches[i]. Called after finish().
  virtual void fill(const SourceBatch& /*batch*/, std::span<model::MicroInput> /*micros*/) {}

  /// True if the source needs to see the whole global batch, or the whole evaluation set, before a pass that trains or scores.
  virtual bool observes() const { return false; }
  /// Starts a batch of `micro_batches`, counted over all ranks.
  virtual void begin(std::int64_t /*micro_batches*/) {}
  /// Called for all micro-batches of the batch, in one or more calls.
  virtual void observe(const SourceBatch& /*batch*/, const Inputs& /*inputs*/) {}
  /// Sets totals after the last micro-batch, with the same bits on all ranks. `groups`: sums over its data ranks count each
  /// micro-batch once. `state`: of the training run, to be advanced by a step; null in evaluations.
  virtual void finish(const parallel::Groups& /*groups*/, parallel::BatchTotals& /*totals*/, SourceState* /*state*/) {}

  /// Peak bytes that the source takes on this rank's compute device.
  virtual std::int64_t bytes() const { return 0; }
};

}  // namespace qft::engine

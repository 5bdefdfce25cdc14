// Prepares a step's inputs: micro-batches on the device, with the columns and totals that sources fill in before the step.
#pragma once

#include "qft/config/run_config.h"
#include "qft/engine/column_source.h"
#include "qft/engine/instance.h"
#include "qft/engine/objectives.h"
#include "qft/loader/loader.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace qft::engine {

/// Copies micro-batches to the instance's device, with the columns that `reference` fills; null: none. Collective.
std::vector<model::MicroInput> make_inputs(Instance& instance, ColumnSource* reference, const SourceBatch& batch);

/// Builds the inputs of a run's steps and evaluations.
class StepInputs {
 public:
  /// `reference`: null if the run has no separate reference. `state`: of the sources in a training step, which observe() of a
  /// step advances; null in evaluations. All arguments must outlive this.
  StepInputs(const config::RunConfig& config, Instance& instance, ColumnSource* reference, SourceState* state);

  /// True if a pass of sources comes before the pass that trains or scores.
  bool observes() const { return !observers_.empty(); }
  /// For a training step: sets the totals that sources compute. Collective.
  void fill_totals(parallel::BatchTotals& totals, const loader::StepBatch& batch);
  /// Returns the inputs to train or score. After fill_totals() or finish() pass micro-batches of the same batch. Collective.
  std::vector<model::MicroInput> inputs(const SourceBatch& batch);

  /// For evaluations: the parts of fill_totals(), over a set of `micro_batches` on all data ranks. Collective.
  void begin(std::int64_t micro_batches);
  void observe(const SourceBatch& batch);
  void finish(parallel::BatchTotals& totals);

 private:
  /// If only items' first sequences train: those.
  std::vector<loader::MicroBatch> firsts_of(const SourceBatch& batch) const;
  /// Returns the inputs if a source asked for them.
  std::optional<std::vector<model::MicroInput>> pass_before(const SourceBatch& batch);

  bool trains_first_only_;
  Instance& instance_;
  ColumnSource* reference_;
  SourceState* state_;
  Sources sources_;
  std::vector<ColumnSource*> observers_;
  /// inputs that fill_totals() already built; inputs() returns them
  std::optional<std::vector<model::MicroInput>> built_;
};

}  // namespace qft::engine

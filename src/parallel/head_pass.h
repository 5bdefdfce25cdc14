// The head's part of a pass: an object for each kind of pass, which the executor calls at the last block.
#pragma once

#include "qft/model/transformer.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/objective.h"

#include <cstddef>
#include <memory>
#include <vector>

#include "acquired_units.h"
#include "in_flight.h"

namespace qft::parallel {

/// A micro-batch at the head.
struct HeadBlock {
  std::size_t index;  ///< of the micro-batch in the pass
  const model::MicroInput& in;
  MicroInFlight& micro;
  model::Transformer& transformer;
  AcquiredUnits& units;
  model::Arena& scratch;
};

class HeadPass {
 public:
  virtual ~HeadPass() = default;
  virtual void forward(const HeadBlock& block) = 0;
  /// Called in training passes. Does nothing if forward() has computed the gradient.
  virtual void backward(const HeadBlock& /*block*/) {}
};

/// The head of the reference lane. Keeps each micro-batch's columns::kReference, or kReferenceRows with `rows`, until the
/// policy's head takes it.
class ReferenceLane final : public HeadPass {
 public:
  ReferenceLane(bool rows, std::size_t micro_batches) : rows_(rows), kept_(micro_batches) {}
  void forward(const HeadBlock& block) override;
  /// Returns the column, and forgets it; undefined if the pass has no reference lane.
  at::Tensor take(std::size_t index) { return std::exchange(kept_[index], {}); }

 private:
  bool rows_;
  std::vector<at::Tensor> kept_;
};

/// Returns the head of training passes. For a row-local objective the logits are computed once: backward runs together with
/// forward. Otherwise backward computes the values again. Writes Objective::observe()'s results to `sums`, by micro-batch. All
/// references must outlive the pass.
std::unique_ptr<HeadPass> training_head(const Objective& objective, double loss_scale, ReferenceLane& lane,
                                        std::vector<at::Tensor>& sums);
/// Returns the head of evaluations, which passes the head's output to `observe`. `objective`: null if no row values are read.
std::unique_ptr<HeadPass> evaluation_head(const Objective* objective, const ObserveLogprobs& observe, ReferenceLane& lane);
/// Returns a head that only keeps its input rows of the labels in `rows`, by micro-batch.
std::unique_ptr<HeadPass> rows_head(std::vector<at::Tensor>& rows);

}  // namespace qft::parallel

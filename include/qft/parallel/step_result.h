// The result of a training step, and how the ranks agree on it.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/weight_store.h"

#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Alike on every rank.
struct StepResult {
  double loss = 0.0;                           ///< of the global batch
  std::map<std::string, double> metrics = {};  ///< of the objective, by name; without those that had nothing to count
  double grad_norm = 0.0;                      ///< before clipping
  bool finite = true;                          ///< loss and norm are finite; if not, every rank must skip the update
  int votes = 0;                               ///< ranks that are asked to stop
  bool abandoned = false;  ///< the ranks voted to stop before all gradients were there: nothing above but `votes` counts
  double seconds = 0.0;    ///< what the step took, mean over the ranks
};

/// Loss and metrics, from the sums of all micro-batches.
struct Score {
  double loss = 0.0;                           ///< the sum of the micro-batches' parts
  double added = 0.0;                          ///< what Objective::summarise() adds to it, when it is divided by the denominator
  std::map<std::string, double> metrics = {};  ///< without those that had nothing to count
};

/// The score of the sums that Objective::observe() returned, one micro-batch after the other.
Score add_up(const Objective& objective, std::span<const double> sums);

/// One rank's part of a step.
struct StepShare {
  std::vector<at::Tensor> sums;  ///< of each micro-batch, as Objective::observe() returned them
  double grad_square_sum = 0.0;
  double loss_scale = 1.0;  ///< that the gradients were multiplied by
  double seconds = 0.0;
  bool asked_to_stop = false;
};

/// One all-reduce; a value that is not finite on one rank is not finite on all. With `range`, the place of the micro-batches in
/// the global batch, their sums are added in that order: the same bits on any number of ranks. Waits for the device. Collective.
StepResult agree(const StepShare& share, const Objective& objective, const MicroRange& range, comm::Communicator& comm);

}  // namespace qft::parallel

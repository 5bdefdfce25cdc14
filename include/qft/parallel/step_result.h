// The result of a training step, and how the ranks agree on it.
#pragma once

#include "qft/parallel/groups.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/weight_store.h"

#include <map>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Identical on every rank.
struct StepResult {
  double loss = 0.0;                           ///< of the global batch
  std::map<std::string, double> metrics = {};  ///< the objective's metrics by name; metrics with a zero count are missing
  double grad_norm = 0.0;                      ///< before clipping
  bool finite = true;                          ///< loss and norm are finite; if false, every rank must skip the update
  int stop_requests = 0;                       ///< number of ranks that are asked to stop
  bool abandoned = false;  ///< the ranks voted to stop before all gradients existed: only `stop_requests` is valid
  double seconds = 0.0;    ///< duration of the step, mean over the ranks
};

/// Loss and metrics, from the sums of all micro-batches.
struct Score {
  double loss = 0.0;   ///< sum of the micro-batches' parts
  double added = 0.0;  ///< result of Objective::summarise(), to add to the loss after division by the denominator
  std::map<std::string, double> metrics = {};  ///< without metrics that have a zero count
};

/// Computes the score from the sums that Objective::observe() returned, one micro-batch after the other.
Score compute_score(const Objective& objective, std::span<const double> sums);

/// One rank's part of a step.
struct StepShare {
  std::vector<at::Tensor> sums;          ///< for each micro-batch, as Objective::observe() returned them
  std::vector<double> grad_square_sums;  ///< WeightStore::local_grad_square_sums()
  double loss_scale = 1.0;               ///< the factor that multiplied the gradients
  double seconds = 0.0;
  bool stop_requested = false;
};

/// Combines the ranks' shares with one all-reduce over groups.all(). A value that is not finite on one rank is not finite on all.
/// The ranks of a data rank have the same micro-batches; only its lead rank (Groups::is_lead) gives sums. Square
/// sums are added unit by unit, in the order of the units, whichever ranks have them. `range` is the position of the
/// micro-batches in the global batch; if it is set, their sums are added in that order, which gives the same bits on any number
/// of ranks. Waits for the device. Collective.
StepResult combine_shares(const StepShare& share, const Objective& objective, const MicroRange& range, const Groups& groups);

}  // namespace qft::parallel

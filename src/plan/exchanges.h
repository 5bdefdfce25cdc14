// Counts what ranks that share matrices or sequences exchange within a step, while compute waits. Private to plan.
#pragma once

#include "qft/parallel/action.h"
#include "qft/plan/run_plan.h"
#include "qft/plan/work.h"

namespace qft::plan {

/// Exchanges along one axis.
struct Exchange {
  double bytes = 0;  ///< that a rank receives, as comm::Counters count them; their mean where ranks receive different numbers
  double hops = 0;   ///< messages that wait for each other

  Exchange& operator+=(const Exchange& other);
};

/// Exchanges of a rank, by axis.
struct Exchanges {
  Exchange tensor = {};   ///< rows, maxima and sums among the ranks that share matrices (model/row_sharing.h)
  Exchange context = {};  ///< heads and log-probabilities among the ranks that share sequences

  Exchanges& operator+=(const Exchanges& other);
};

/// Returns the exchanges of one forward or backward action; of other actions, none. Objectives that read rows of logits may
/// exchange some more numbers for each label, which are not counted.
Exchanges exchanges_of(const RunPlan& run, const parallel::Action& action, const MicroShape& micro);

/// Returns the exchanges at the end of a step: gradients of tensors that are whole on every tensor rank, and norms of DoRA's
/// rows.
Exchanges exchanges_of_update(const RunPlan& run);

}  // namespace qft::plan

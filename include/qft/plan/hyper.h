// Reads the optimizer's hyper-parameters from a run file.
#pragma once

#include "qft/config/training_args.h"
#include "qft/optim/rule.h"

namespace qft::plan {

/// Returns the hyper-parameters of optim::rule_of(training.optim). Throws ConfigError if optim_args has an argument that the rule
/// does not take.
optim::Hyper hyper_of(const config::TrainingArgs& training);

}  // namespace qft::plan

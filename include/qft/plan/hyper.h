// What a configuration asks of the optimizer.
#pragma once

#include "qft/config/training_args.h"
#include "qft/optim/rule.h"

namespace qft::plan {

/// The hyper-parameters of optim::rule_of(training.optim). Throws ConfigError where optim_args has what the rule does not take.
optim::Hyper hyper_of(const config::TrainingArgs& training);

}  // namespace qft::plan

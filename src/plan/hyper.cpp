#include "qft/plan/hyper.h"

namespace qft::plan {

optim::Hyper hyper_of(const config::TrainingArgs& t) {
  const optim::RuleSpec& rule = optim::rule_of(t.optim);
  optim::Hyper hyper{t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.weight_decay, optim::RuleArgs(t.optim_args)};
  hyper.args.require_only(rule.args, rule.name);
  rule.make(hyper);  // reads the values
  return hyper;
}

}  // namespace qft::plan

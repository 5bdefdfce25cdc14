#include "qft/plan/hyper.h"

#include "qft/core/error.h"

#include <fmt/format.h>

namespace qft::plan {
namespace {

/// What optim_args has, or, where it is empty, what LLaMA-Factory's keys have in its place.
std::string args_of(const config::TrainingArgs& t, const optim::RuleSpec& rule) {
  if (!t.optim_args.empty() || rule.name != "GaLore") return t.optim_args;
  if (t.galore_target != std::vector<std::string>{"all"})
    fail_config("galore_target: only all is implemented, every matrix of the layers: remove it");
  return fmt::format("rank={},update_proj_gap={},scale={},proj_type={}", t.galore_rank, t.galore_update_interval, t.galore_scale,
                     t.galore_proj_type);
}

}  // namespace

optim::Hyper hyper_of(const config::TrainingArgs& t) {
  const optim::RuleSpec& rule = optim::rule_of(t.optim);
  optim::Hyper hyper{t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.weight_decay, optim::RuleArgs(args_of(t, rule))};
  hyper.args.require_only(rule.args, rule.name);
  rule.make(hyper);  // reads the values
  return hyper;
}

}  // namespace qft::plan

#include "qft/plan/hyper.h"

#include <fmt/format.h>

namespace qft::plan {
namespace {

/// Returns optim_args; if empty, the equivalent of LLaMA-Factory's keys.
std::string args_of(const config::TrainingArgs& t, const optim::RuleSpec& rule) {
  if (!t.optim_args.empty()) return t.optim_args;
  if (rule.name == "GaLore") {
    return fmt::format("rank={},update_proj_gap={},scale={},proj_type={}", t.galore_rank, t.galore_update_interval,
                       t.galore_scale, t.galore_proj_type);
  }
  if (rule.name == "APOLLO") {
    return fmt::format("rank={},update_proj_gap={},scale={},proj={},proj_type={},scale_type={},scale_front={}", t.apollo_rank,
                       t.apollo_update_interval, t.apollo_scale, t.apollo_proj, t.apollo_proj_type, t.apollo_scale_type,
                       t.apollo_scale_front);
  }
  return {};
}

}  // namespace

optim::Hyper hyper_of(const config::TrainingArgs& t) {
  const optim::RuleSpec& rule = optim::rule_of(t.optim);
  optim::Hyper hyper{t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.weight_decay, optim::RuleArgs(args_of(t, rule))};
  hyper.args.require_only(rule.args, rule.name);
  rule.make(hyper);  // checks the values
  return hyper;
}

}  // namespace qft::plan

#include "rules.h"

#include "qft/core/error.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft::optim {

std::int64_t RuleSpec::state_bytes(const Precision& precision) const {
  return static_cast<std::int64_t>(state.size() * c10::elementSize(precision.state));
}

std::span<const RuleSpec> rules() {
  static const RuleSpec kRules[] = {
      {"AdamW", {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw"}, {"exp_avg", "exp_avg_sq"}, make_adamw},
      {"Lion", {"lion_32bit", "lion"}, {"exp_avg"}, make_lion},
  };
  return kRules;
}

const RuleSpec& rule_of(std::string_view optim) {
  std::vector<std::string_view> known;
  for (const RuleSpec& rule : rules()) {
    if (std::find(rule.optim.begin(), rule.optim.end(), optim) != rule.optim.end()) return rule;
    known.insert(known.end(), rule.optim.begin(), rule.optim.end());
  }
  fail_config("optim '{}' is not implemented: use one of {}", optim, fmt::join(known, ", "));
}

}  // namespace qft::optim

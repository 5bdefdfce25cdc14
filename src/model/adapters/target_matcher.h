// Whether an adapter's targets mean a module. Private to model.
#pragma once

#include "qft/model/adapter_targets.h"

#include <string>
#include <vector>

#include "../name_pattern.h"

namespace qft::model {

class TargetMatcher {
 public:
  /// `targets` must outlive it. Throws ConfigError where an expression is none.
  explicit TargetMatcher(const AdapterTargets& targets) : targets_(targets) {
    if (!targets.target_pattern.empty()) pattern_.emplace_back(targets.key, targets.target_pattern);
  }

  /// By the whole name.
  bool wraps(const std::string& module) const {
    const std::string name = targets_.own_name(module);
    return pattern_.empty() ? targets_.targets_module(name) : pattern_.front().matches(name);
  }

 private:
  const AdapterTargets& targets_;
  std::vector<NamePattern> pattern_;  ///< the one of the targets, where they are one
};

}  // namespace qft::model

// Matches modules against an adapter's targets, names or a regular expression for full module names. Private to model.
#pragma once

#include "qft/model/adapter_targets.h"

#include <memory>
#include <string>
#include <vector>

namespace qft::model {

/// Matches like Python's re.fullmatch, using PCRE2.
class NamePattern {
 public:
  /// Throws ConfigError, starting with `what`, if PCRE2 rejects the expression.
  NamePattern(std::string what, std::string expression);

  /// Throws ConfigError if the expression takes too long on this name.
  bool matches(const std::string& name) const;

 private:
  std::string what_, expression_;
  std::shared_ptr<void> code_;
};

class TargetMatcher {
 public:
  /// `targets` must outlive the object. Throws ConfigError if an expression is invalid.
  explicit TargetMatcher(const AdapterTargets& targets) : targets_(targets) {
    if (!targets.target_pattern.empty()) pattern_.emplace_back(targets.key, targets.target_pattern);
  }

  /// Returns true if the adapter wraps the module with this full name.
  bool wraps(const std::string& module) const {
    const std::string name = targets_.name_in_files(module);
    return pattern_.empty() ? targets_.targets_module(name) : pattern_.front().matches(name);
  }

 private:
  const AdapterTargets& targets_;
  std::vector<NamePattern> pattern_;  ///< target_pattern if it is set, else empty
};

}  // namespace qft::model

// Finds the linears that LoRA wraps, with their rank and scaling. Private to model.
#pragma once

#include "qft/model/spec.h"

#include <map>
#include <string>
#include <vector>

#include "../name_pattern.h"
#include "target_matcher.h"

namespace qft::model {

class LoraTargets : public TargetMatcher {
 public:
  /// `lora` must outlive the object. Throws ConfigError if an expression is invalid.
  explicit LoraTargets(const LoraConfig& lora);

  /// Fills ParamGroup::lora of a layer; its module names begin with `prefix`. Throws ConfigError for anything not implemented:
  /// different settings for the experts of a layer, and DoRA for experts.
  void set_rows(const std::string& prefix, Layer& layer) const;

  /// Throws ConfigError if an expression in rank_pattern or alpha_pattern matches none of `modules`.
  void require_all_met(const std::vector<std::string>& modules) const;

 private:
  /// An expression in rank_pattern or alpha_pattern, and its value.
  struct Key {
    std::string text;
    NamePattern pattern;
    double number;
  };
  /// rank_pattern or alpha_pattern, and the value if no expression matches.
  struct Keys {
    template <class Number>
    Keys(const char* what, Number default_value, const std::map<std::string, Number>& numbers);
    /// Throws ConfigError if two matching expressions give different numbers: PEFT takes the first in the file.
    double number_of(const std::string& module) const;

    const char* what;
    double default_value;
    std::vector<Key> keys;
  };
  /// Sets rank, scaling and the remaining fields of a module's rows.
  LoraRows numbers(const std::string& module, LoraRows rows) const;
  std::vector<LoraRows> rows_of(const std::string& prefix, const ParamGroup& group) const;

  const LoraConfig& lora_;
  Keys ranks_, alphas_;
};

}  // namespace qft::model

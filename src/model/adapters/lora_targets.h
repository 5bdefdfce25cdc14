// Which linears of a model LoRA wraps, and with which rank and scale. Private to model.
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
  /// `lora` must outlive it. Throws ConfigError where an expression is none.
  explicit LoraTargets(const LoraConfig& lora);

  /// Fills ParamGroup::lora of a layer whose modules' names begin with `prefix`. Throws ConfigError for what is not implemented:
  /// experts of a layer that differ, DoRA of experts.
  void place(const std::string& prefix, Layer& layer) const;

  /// Throws ConfigError where an expression of rank_pattern or alpha_pattern matches none of `modules`.
  void require_all_met(const std::vector<std::string>& modules) const;

 private:
  /// An expression of rank_pattern or alpha_pattern, and what it gives.
  struct Key {
    std::string text;
    NamePattern pattern;
    double number;
  };
  /// rank_pattern or alpha_pattern, and what counts where none of them matches.
  struct Keys {
    template <class Number>
    Keys(const char* what, Number otherwise, const std::map<std::string, Number>& numbers);
    /// Throws ConfigError where two match that give different numbers: PEFT takes that which its file has first.
    double number_of(const std::string& module) const;

    const char* what;
    double otherwise;
    std::vector<Key> keys;
  };
  /// Rank, scaling and the rest of rows whose module has this name.
  LoraRows numbers(const std::string& module, LoraRows rows) const;
  std::vector<LoraRows> rows_of(const std::string& prefix, const ParamGroup& group) const;

  const LoraConfig& lora_;
  Keys ranks_, alphas_;
};

}  // namespace qft::model

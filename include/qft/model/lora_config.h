// PEFT's LoraConfig: the linears that an adapter wraps, and how.
#pragma once

#include "qft/model/adapter_targets.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace qft::model {

struct ExpertStack;

/// LoRA (Hu et al. 2021; PEFT's LoraLayer): W x + scaling * B A dropout(x).
struct LoraConfig : AdapterTargets {
  std::int64_t rank = 0;  ///< 0: no LoRA
  double alpha = 0.0;
  double dropout = 0.0;
  bool rslora = false;         ///< scaling is alpha / sqrt(rank) (Kalajdzievski 2023)
  bool dora = false;           ///< adds a magnitude for each output (Liu et al. 2024)
  bool expert_modules = true;  ///< targets include the linears of each expert
  /// Expert stacks, by the end of their path, with one pair of factors per expert for the fused tensor (PEFT's
  /// target_parameters).
  std::vector<std::string> target_parameters;
  /// Ranks and alphas that differ from the defaults above. The key is a regular expression for the end of a module name, starting
  /// after a dot; the first match counts (PEFT's rank_pattern, alpha_pattern).
  std::map<std::string, std::int64_t> ranks = {};
  std::map<std::string, double> alphas = {};
  /// Starts the adapter from each weight's principal part (model/pissa.h) rather than from 0.
  struct Pissa {
    std::int64_t iterations = 16;  ///< of the fast decomposition; -1: exact
    bool convert = false;          ///< save the plain adapter with twice the rank, for the model's original weights
  };
  std::optional<Pissa> pissa = {};

  bool enabled() const { return rank > 0; }
  bool targets_parameter(const ExpertStack& stack) const;
  double scaling() const { return scaling(rank, alpha); }
  double scaling(std::int64_t rank, double alpha) const;
  /// For an adapter initialised by PiSSA, returns the equivalent adapter with twice the rank and the same scaling, for the
  /// model's original weights.
  LoraConfig plain() const;
};

}  // namespace qft::model

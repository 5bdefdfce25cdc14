// What PEFT's LoraConfig says of an adapter: which linears it wraps, and how.
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
  bool rslora = false;         ///< scaling alpha / sqrt(rank) (Kalajdzievski 2023)
  bool dora = false;           ///< with a magnitude for each output (Liu et al. 2024)
  bool expert_modules = true;  ///< targets mean the linears of each expert too
  /// Stacks of experts with one pair of factors an expert for the fused tensor, by its path's end (PEFT's target_parameters).
  std::vector<std::string> target_parameters;
  /// Ranks and alphas that are other than these, by a regular expression for the end of a module's name, from a dot on; the first
  /// that matches counts (PEFT's rank_pattern, alpha_pattern).
  std::map<std::string, std::int64_t> ranks = {};
  std::map<std::string, double> alphas = {};
  /// How an adapter starts from the principal part of each weight (model/pissa.h) rather than from 0.
  struct Pissa {
    std::int64_t iterations = 16;  ///< of the fast decomposition; -1: the exact one
    bool convert = false;          ///< files have the plain adapter of twice the rank, for the model's own weights
  };
  std::optional<Pissa> pissa = {};

  bool enabled() const { return rank > 0; }
  bool targets_parameter(const ExpertStack& stack) const;
  double scaling() const { return scaling(rank, alpha); }
  double scaling(std::int64_t rank, double alpha) const;
  /// Of an adapter that began by PiSSA: that of twice the rank, with the same scaling, which goes with the model's own weights.
  LoraConfig plain() const;
};

}  // namespace qft::model

// What PEFT's LoraConfig says of an adapter: which linears it wraps, and how.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct ExpertStack;

/// LoRA (Hu et al. 2021; PEFT's LoraLayer): W x + scaling * B A dropout(x).
struct LoraConfig {
  std::int64_t rank = 0;  ///< 0: no LoRA
  double alpha = 0.0;
  double dropout = 0.0;
  bool rslora = false;  ///< scaling alpha / sqrt(rank) (Kalajdzievski 2023)
  bool dora = false;    ///< with a magnitude for each output (Liu et al. 2024)
  /// Modules by their names, or by the ends of their paths: those of lora_modules() in that order, then paths.
  std::vector<std::string> targets;
  std::string target_pattern = {};  ///< not empty: those whose whole name this regular expression matches, and no others
  bool expert_modules = true;       ///< they mean the linears of each expert too
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
  /// Modules that train in full beside the factors, and are saved with them (PEFT's modules_to_save).
  std::vector<std::string> modules_to_save = {};
  /// Of the classifier that it is the adapter of (PEFT's task_type SEQ_CLS), whose head it has beside these; 0: it is of none.
  std::int64_t labels = 0;

  bool enabled() const { return rank > 0; }
  bool targets_module(std::string_view name) const;
  bool targets_parameter(const ExpertStack& stack) const;
  double scaling() const { return scaling(rank, alpha); }
  double scaling(std::int64_t rank, double alpha) const;
  /// `all` (but for routers), a comma-separated list of names or ends of paths, or one regular expression for whole names, which
  /// is known by a character that no name has. Throws ConfigError naming an unknown module and the known.
  void set_targets(const std::string& list);
  /// Keeps those targets whose last name is among `modules`.
  void keep_targets(const std::vector<std::string>& modules);
  /// As set_targets() takes them.
  std::string targets_text() const;
  /// Of an adapter that began by PiSSA: that of twice the rank, with the same scaling, which goes with the model's own weights.
  LoraConfig plain() const;
};

}  // namespace qft::model

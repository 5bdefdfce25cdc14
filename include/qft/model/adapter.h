// Adapters: small trainable parameters beside frozen weights. Each adapter kind is a row of src/model/adapters/kinds.cpp.
#pragma once

#include "qft/model/adapter_targets.h"
#include "qft/ops/cayley.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qft::model {

/// OFT (Qiu et al. 2023, 2025; PEFT's OFTLayer): W R x, where R rotates blocks of x.
struct OftConfig : AdapterTargets {
  OftConfig() { key = "oft_target"; }

  std::int64_t rank = 0;        ///< number of blocks of a linear's inputs; 0: block_size is given
  std::int64_t block_size = 0;  ///< inputs per block; 0: rank is given; both 0: no OFT
  bool shared = false;          ///< one block rotates all blocks of a linear's inputs (PEFT's block_share)
  bool neumann = true;          ///< compute R by a Neumann series with `terms` terms rather than exactly
  std::int64_t terms = 5;       ///< of the series, at least 2
  bool expert_modules = true;   ///< targets include the linears of each expert

  bool enabled() const { return rank > 0 || block_size > 0; }
  ops::CayleyTerms cayley() const { return neumann ? static_cast<ops::CayleyTerms>(terms) : ops::kCayleyExact; }
  /// Returns the block size for a linear with `inputs` inputs: the requested size or, if that does not divide `inputs`, the
  /// nearest divisor (the lower one on a tie), like PEFT.
  std::int64_t block_of(std::int64_t inputs) const;
  /// Returns a description: "OFT in blocks of 32 by 5 terms of the series on q_proj,v_proj".
  std::string describe() const;
};

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

/// Configuration of an adapter of any kind. At most one member is enabled().
struct AdapterConfig {
  LoraConfig lora = {};
  OftConfig oft = {};

  AdapterConfig() = default;
  AdapterConfig(LoraConfig config) : lora(std::move(config)) {}  // NOLINT(google-explicit-constructor): a kind is an adapter
  AdapterConfig(OftConfig config) : oft(std::move(config)) {}    // NOLINT(google-explicit-constructor)

  bool enabled() const { return lora.enabled() || oft.enabled(); }
  /// Returns the enabled kind's targets; LoRA's if none is enabled.
  const AdapterTargets& targets() const {
    if (oft.enabled()) return oft;
    return lora;
  }
  AdapterTargets& targets() {
    if (oft.enabled()) return oft;
    return lora;
  }
};

}  // namespace qft::model

// PEFT's OFTConfig: the linears that an adapter wraps, and how.
#pragma once

#include "qft/model/adapter_targets.h"
#include "qft/ops/cayley.h"

#include <cstdint>
#include <string>

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

}  // namespace qft::model

// What PEFT's OFTConfig says of an adapter: which linears it wraps, and how.
#pragma once

#include "qft/model/adapter_targets.h"
#include "qft/ops/cayley.h"

#include <cstdint>
#include <string>

namespace qft::model {

/// OFT (Qiu et al. 2023, 2025; PEFT's OFTLayer): W R x, where R turns blocks of x.
struct OftConfig : AdapterTargets {
  OftConfig() { key = "oft_target"; }

  std::int64_t rank = 0;        ///< blocks of a linear's inputs; 0: their size is given
  std::int64_t block_size = 0;  ///< 0: their number is given; both 0: no OFT
  bool shared = false;          ///< one block serves all of a linear's inputs (PEFT's block_share)
  bool neumann = true;          ///< R by a series of `terms` rather than exactly
  std::int64_t terms = 5;       ///< of the series, at least 2
  bool expert_modules = true;   ///< targets mean the linears of each expert too

  bool enabled() const { return rank > 0 || block_size > 0; }
  ops::CayleyTerms cayley() const { return neumann ? static_cast<ops::CayleyTerms>(terms) : ops::kCayleyExact; }
  /// The size of the blocks of so many inputs: what is asked, or, where that does not divide them, the nearest number that does,
  /// the lower one of two, as PEFT adjusts it.
  std::int64_t block_of(std::int64_t inputs) const;
  /// "OFT in blocks of 32 by 5 terms of the series on q_proj,v_proj"
  std::string words() const;
};

}  // namespace qft::model

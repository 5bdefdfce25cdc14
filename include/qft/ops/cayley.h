// The rotation R that a skew-symmetric Q stands for in OFT (Qiu et al. 2023; PEFT's OFTRotationModule). Needs no LibTorch.
#pragma once

#include <algorithm>
#include <vector>

namespace qft::ops {

/// How R follows from Q: 0 is Cayley's (I - Q) (I + Q)^-1, another number so many terms of PEFT's series for the other sign of Q,
/// (I + Q) (I - Q)^-1 = I + 2 Q + 2 Q^2 + ... (Qiu et al. 2025).
using CayleyTerms = int;
inline constexpr CayleyTerms kCayleyExact = 0;

/// c_1, c_2, ... of R = I + c_1 Q + c_2 Q^2 + ...: all 2, but that the last of three or more is 1. As in PEFT three terms and
/// four are the same.
inline std::vector<double> cayley_series(CayleyTerms terms) {
  if (terms <= 2) return {2.0};
  std::vector<double> series(static_cast<std::size_t>(std::max(3, terms - 1)), 2.0);
  series.back() = 1.0;
  return series;
}

}  // namespace qft::ops

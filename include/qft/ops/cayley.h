// The rotation R built from a skew-symmetric Q in OFT (Qiu et al. 2023; PEFT's OFTRotationModule). Needs no LibTorch.
#pragma once

#include <algorithm>
#include <vector>

namespace qft::ops {

/// How R is computed from Q. 0: Cayley's (I - Q) (I + Q)^-1. Otherwise: the number of terms of PEFT's series, which uses the
/// opposite sign of Q: (I + Q) (I - Q)^-1 = I + 2 Q + 2 Q^2 + ... (Qiu et al. 2025).
using CayleyTerms = int;
inline constexpr CayleyTerms kCayleyExact = 0;

/// Returns c_1, c_2, ... of R = I + c_1 Q + c_2 Q^2 + ...: all are 2, except that the last of three or more is 1. As in PEFT,
/// three terms and four terms give the same series.
inline std::vector<double> cayley_series(CayleyTerms terms) {
  if (terms <= 2) return {2.0};
  std::vector<double> series(static_cast<std::size_t>(std::max(3, terms - 1)), 2.0);
  series.back() = 1.0;
  return series;
}

}  // namespace qft::ops

#pragma once
#include <cmath>

namespace qft::eval {

/// Rounds to multiples of 1 / parts: 1e3 leaves three decimals, as in transformers' results files.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace qft::eval

#pragma once
#include <cmath>

namespace qft::eval {

/// To parts of one: 1e3 leaves three decimals, as the results files of transformers have them.
inline double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace qft::eval

// What errors say of the optimizers that there are.
#pragma once

#include <string_view>

namespace qft::config {

inline constexpr std::string_view kOptimizersHere = "qft has AdamW, 8-bit AdamW, Lion, SGD, Muon, Adafactor, GaLore and APOLLO";

}  // namespace qft::config

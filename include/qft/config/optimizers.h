// The list of implemented optimizers, for error messages.
#pragma once

#include <string_view>

namespace qft::config {

inline constexpr std::string_view kOptimizersHere = "qft has AdamW, 8-bit AdamW, Lion, SGD, Muon, Adafactor, GaLore and APOLLO";

}  // namespace qft::config

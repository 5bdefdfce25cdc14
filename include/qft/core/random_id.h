// Names that are unique among all processes.
#pragma once

#include <string>

namespace qft {

/// Returns `digits` random hex digits from the system; 32 digits are 128 bits.
std::string random_hex(int digits = 32);

}  // namespace qft

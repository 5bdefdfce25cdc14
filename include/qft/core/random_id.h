// Names that no other process gives.
#pragma once

#include <string>

namespace qft {

/// `digits` random hex digits from the system; 32 are 128 bits.
std::string random_hex(int digits = 32);

}  // namespace qft

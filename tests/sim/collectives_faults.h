// Injected faults of operations, and the limit of their waits.
#pragma once

#include <chrono>
#include <vector>

#include "collectives.h"

namespace qft::sim::collectives {

/// Returns the faults of a rank's next operation; call it once per operation.
std::vector<Fault> faults_of_next(int rank);

/// 0: no limit.
std::chrono::milliseconds wait_limit();

}  // namespace qft::sim::collectives

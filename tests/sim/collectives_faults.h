// What operations are told to do wrong, and how long they wait.
#pragma once

#include <chrono>
#include <vector>

#include "collectives.h"

namespace qft::sim::collectives {

/// What the next operation of a rank is told to; asked for once per operation.
std::vector<Fault> faults_of_next(int rank);

/// 0: without end.
std::chrono::milliseconds wait_limit();

}  // namespace qft::sim::collectives

// Runs one function on several threads.
#pragma once

#include <functional>

namespace qft {

/// Runs body(0) .. body(count - 1) at the same time, body(0) on this thread. When all have returned, rethrows the exception of
/// the lowest number that threw.
void run_workers(int count, const std::function<void(int)>& body);

}  // namespace qft

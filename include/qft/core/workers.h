// A few threads that do the same.
#pragma once

#include <functional>

namespace qft {

/// Runs body(0) .. body(count - 1) at once, the first on this thread. When all have returned, throws what one
/// of them threw: that of the lowest number.
void run_workers(int count, const std::function<void(int)>& body);

}  // namespace qft

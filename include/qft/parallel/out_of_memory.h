// Explains a failed allocation: where it failed, how much memory is held, which settings help.
#pragma once

#include <functional>
#include <string>

namespace qft::parallel {

/// Runs `body`. If memory runs out, throws Error with the rank, its node, `where()`, the failed request, `held()` and `advice`.
/// Other exceptions pass through.
void explain_out_of_memory(const std::function<void()>& body, const std::function<std::string()>& where,
                           const std::function<std::string()>& held, const std::string& advice);

}  // namespace qft::parallel

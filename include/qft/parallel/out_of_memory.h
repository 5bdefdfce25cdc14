// A failed allocation, explained: where, what is held, what helps.
#pragma once

#include <functional>
#include <string>

namespace qft::parallel {

/// Runs `body`. Where memory runs out in it throws Error: the rank, its node, `where()`, what was asked for, `held()` and
/// `advice`. Anything else passes.
void or_explain_memory(const std::function<void()>& body, const std::function<std::string()>& where,
                       const std::function<std::string()>& held, const std::string& advice);

}  // namespace qft::parallel

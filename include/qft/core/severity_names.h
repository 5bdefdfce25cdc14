// The words for the log's levels.
#pragma once

#include <string_view>

namespace qft::log {

/// In the order of Severity.
inline constexpr std::string_view kSeverityNames[] = {"trace", "debug", "info", "warning", "error"};

}  // namespace qft::log

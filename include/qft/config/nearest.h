// Suggestions for mistyped names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qft::config {

/// Returns the entry of `names` with the smallest edit distance to `word` (insert, delete, replace, swap neighbours), or "" if no
/// entry is close enough.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

/// Returns ": did you mean 'x'?", or ": `otherwise`" if no name is close enough.
std::string suggestion(std::string_view word, std::span<const std::string_view> names, std::string_view otherwise);

}  // namespace qft::config

// The known name that a mistyped one probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qft::config {

/// The name of `names` at the least edit distance from `word` (insert, delete, replace, swap neighbours),
/// or "" where none is near enough to be worth naming.
std::string_view nearest(std::string_view word, std::span<const std::string_view> names);

/// ": did you mean 'x'?", or ": `otherwise`" where no name is near.
std::string suggestion(std::string_view word, std::span<const std::string_view> names, std::string_view otherwise);

}  // namespace qft::config

// The common start of a pair's two sequences: its tokens have one row in a micro-batch (ops/shared_rows.h).
#pragma once

#include "qft/pack/reader.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::loader {

/// Returns how many tokens at the start of a pair's second sequence equal the first's. Each sequence keeps its own row for the
/// token before its first label, at `first_label`, because that row predicts the label. Returns 0 if one has no label (0).
std::int32_t shared_prompt(std::span<const std::int32_t> chosen, std::int64_t first_label, std::span<const std::int32_t> rejected,
                           std::int64_t rejected_first_label);
/// The same for an item that is a pair.
std::int32_t shared_prompt(const pack::FlatItem& item);

/// Maximum number of pairs that a run reads before it starts, to find how many tokens they share.
inline constexpr std::int64_t kMaxKnownPairs = 20'000;

/// Returns [items], a lower bound of the tokens that the pairs of a pack share: shared_prompt(), or 0 if there are more than
/// kMaxKnownPairs items. Empty if the pack has no pairs. Throws Error if an item is damaged.
std::vector<std::int32_t> shared_prompts(const pack::PackReader& pack);

}  // namespace qft::loader

// What the two sequences of a pair have in common at their start: its tokens have one row in a micro-batch (ops/shared_rows.h).
#pragma once

#include "qft/pack/reader.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::loader {

/// Whether the items of a pack are pairs of a prompt with a chosen and with a rejected answer.
bool has_pairs(const pack::PackAttributes& pack);

/// Tokens at the start of the second sequence of a pair that are those of the first. Each sequence keeps a row of its own for the
/// token before its first label, which stands at `first_label` of it and is predicted from there: 0 where one has no label (0).
std::int32_t shared_prompt(std::span<const std::int32_t> chosen, std::int64_t first_label, std::span<const std::int32_t> rejected,
                           std::int64_t rejected_first_label);
/// Of an item that is a pair.
std::int32_t shared_prompt(const pack::FlatItem& item);

/// Items of which a run reads the tokens before it starts, to know what they share.
inline constexpr std::int64_t kMostKnownPairs = 20'000;

/// [items] what the pairs of a pack share at least: shared_prompt(), 0 where there are more than kMostKnownPairs; empty: it has
/// none. Throws Error where an item is damaged.
std::vector<std::int32_t> shared_prompts(const pack::PackReader& pack);

}  // namespace qft::loader

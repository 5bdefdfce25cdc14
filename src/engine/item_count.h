// Helpers of the checks of a pack's items.
#pragma once

#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"

#include <cstdint>
#include <functional>
#include <string>

namespace qft::engine {

/// Counts the items that satisfy a predicate and remembers the first.
struct ItemCount {
  std::int64_t all = 0, count = 0, first = -1;
  /// `items`: null for all.
  ItemCount(const pack::PackReader& pack, const loader::ItemSubset& items, const std::function<bool(std::int64_t item)>& matches);
};

/// Returns "; 18 of 25 records were cut to cutoff_len 8: raise it", or "" if none was cut.
std::string cut_words(const pack::PackReader& pack);

}  // namespace qft::engine

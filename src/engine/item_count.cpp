#include "item_count.h"

#include "qft/core/units.h"

#include <fmt/format.h>

namespace qft::engine {

ItemCount::ItemCount(const pack::PackReader& pack, const loader::ItemSubset& items,
                     const std::function<bool(std::int64_t item)>& matches)
    : all(items ? static_cast<std::int64_t>(items->size()) : pack.num_items()) {
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t number = items ? (*items)[static_cast<std::size_t>(i)] : i;
    if (matches(number) && count++ == 0) first = number;
  }
}

std::string cut_words(const pack::PackReader& pack) {
  std::int64_t records = 0, cut = 0;
  for (const pack::PackSource& source : pack.attributes().sources) records += source.records, cut += source.truncated;
  if (cut == 0) return {};
  return fmt::format("; {} of {} were cut to cutoff_len {}: raise it", cut, count_noun(records, "record"),
                     pack.attributes().cutoff_len);
}

}  // namespace qft::engine

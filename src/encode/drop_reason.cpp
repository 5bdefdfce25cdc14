#include "qft/encode/drop_reason.h"

#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <numeric>

namespace qft::encode {

std::int64_t Drops::total() const {
  return std::accumulate(counts.begin(), counts.end(), INT64_C(0));
}

void Drops::add(DropReason reason, const std::string& what) {
  const auto r = static_cast<std::size_t>(reason);
  if (counts[r]++ == 0) first[r] = what;
}

Drops& Drops::operator+=(const Drops& later) {
  for (std::size_t r = 0; r < kDropReasons; ++r) {
    if (counts[r] == 0) first[r] = later.first[r];
    counts[r] += later.counts[r];
  }
  return *this;
}

void require_usable(const std::string& dataset, std::int64_t records, const Drops& drops) {
  if (records == 0 || drops.total() < records) return;
  const auto text = fmt::format("dataset '{}': none of its {} records can be learned: {}", dataset, records, describe(drops));
  const auto count = [&](DropReason reason) { return drops.counts[static_cast<std::size_t>(reason)]; };
  // The few records drawn from a dataset may all lack an answer, but unknown roles mean that its description is wrong.
  require(count(DropReason::role) + count(DropReason::unreadable) < records, "{}", text);
  log::warn("{}", text);
}

std::string describe(const Drops& drops) {
  std::array<std::size_t, kDropReasons> order;
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return drops.counts[a] > drops.counts[b]; });
  std::string text;
  for (const std::size_t r : order)
    if (drops.counts[r] > 0)
      text += fmt::format("{}{} {} (the first: {})", text.empty() ? "" : "; ", drops.counts[r],
                          describe(static_cast<DropReason>(r)), drops.first[r]);
  return text;
}

}  // namespace qft::encode

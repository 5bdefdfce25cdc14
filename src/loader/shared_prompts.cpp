#include "qft/loader/shared_prompts.h"

#include <algorithm>

namespace qft::loader {
namespace {

/// Returns the position of the first label of sequence `s`; 0 without labels. A label at the sequence's first token does not
/// count, because no token predicts it.
std::int64_t first_label(const pack::FlatItem& item, std::size_t s) {
  const auto begin = s == 0 ? 0 : item.span_ends[s - 1];
  if (begin == item.span_ends[s]) return 0;
  return std::max(item.spans[static_cast<std::size_t>(begin)].begin, 1);
}

}  // namespace

std::int32_t shared_prompt(std::span<const std::int32_t> chosen, std::int64_t first_label, std::span<const std::int32_t> rejected,
                           std::int64_t rejected_first_label) {
  const std::int64_t most = std::min(first_label, rejected_first_label) - 1;
  if (most <= 0) return 0;
  return static_cast<std::int32_t>(std::mismatch(chosen.begin(), chosen.begin() + most, rejected.begin()).first - chosen.begin());
}

std::int32_t shared_prompt(const pack::FlatItem& item) {
  const std::span<const std::int32_t> ids(item.ids);
  const auto end = static_cast<std::size_t>(item.sequence_ends[0]);
  return shared_prompt(ids.first(end), first_label(item, 0), ids.subspan(end), first_label(item, 1));
}

std::vector<std::int32_t> shared_prompts(const pack::PackReader& pack) {
  if (!pack.attributes().stage_row().has_pairs()) return {};
  std::vector<std::int32_t> shared(static_cast<std::size_t>(pack.num_items()));
  if (pack.num_items() > kMaxKnownPairs) return shared;
  pack::FlatItem item;
  for (std::int64_t i = 0; i < pack.num_items(); ++i) {
    pack.read(i, item);
    shared[static_cast<std::size_t>(i)] = shared_prompt(item);
  }
  return shared;
}

}  // namespace qft::loader

#include "qft/loader/batch_bounds.h"

#include <algorithm>

namespace qft::loader {

BatchBounds batch_bounds(const StepSchedule& schedule, std::span<const std::int32_t> tokens, std::span<const std::int32_t> labels,
                         std::int64_t item_sequences, std::span<const std::int32_t> shared, const ItemSequences& varying) {
  constexpr std::int64_t kUnits = 2'000'000;
  const std::int64_t total = schedule.total_steps();
  const std::int64_t count =
      std::min(total, std::max<std::int64_t>(1, kUnits / std::max<std::int64_t>(1, schedule.global_batch_size())));
  const auto shared_of = [&](std::int64_t item) { return shared.empty() ? 0 : shared[static_cast<std::size_t>(item)]; };
  const bool varies = !varying.counts.empty();
  const auto count_of = [&](std::int64_t item) {
    return varies ? varying.counts[static_cast<std::size_t>(item)] : item_sequences;
  };
  const auto longest_of = [&](std::int64_t item) { return (varies ? varying.longest : tokens)[static_cast<std::size_t>(item)]; };
  BatchBounds most;
  for (std::int64_t i = 0; i < count; ++i) {
    const StepPlan plan = schedule.plan(i * total / count);
    most.max_micro_batches = std::max(most.max_micro_batches, plan.max_micro_batches);
    for (const auto& items : plan.micro_batches) {
      std::int64_t t = 0, l = 0, longest = 0, again = 0, sequences = 0;
      for (const std::int64_t item : items) {
        t += tokens[static_cast<std::size_t>(item)];
        l += labels[static_cast<std::size_t>(item)];
        again += shared_of(item);
        longest = std::max<std::int64_t>(longest, longest_of(item));
        sequences += count_of(item);
      }
      most.shape.tokens = std::max(most.shape.tokens, t - again);
      if (!shared.empty()) most.shape.expanded = std::max(most.shape.expanded, t);
      most.shape.labels = std::max(most.shape.labels, l);
      most.shape.sequences = std::max(most.shape.sequences, sequences);
      most.shape.longest = std::max(most.shape.longest, longest);
      most.shape.padded = std::max(most.shape.padded, sequences * longest);
    }
  }
  if (count == total) return most;
  const auto& options = schedule.options();
  const std::int64_t units = std::min(options.micro_batch_size, schedule.global_batch_size());
  std::int64_t most_sequences = 0;
  const auto consider = [&](std::int64_t item) {
    most.shape.tokens = std::max<std::int64_t>(most.shape.tokens, tokens[static_cast<std::size_t>(item)] - shared_of(item));
    if (!shared.empty())
      most.shape.expanded = std::max<std::int64_t>(most.shape.expanded, tokens[static_cast<std::size_t>(item)]);
    most.shape.labels = std::max<std::int64_t>(most.shape.labels, labels[static_cast<std::size_t>(item)]);
    most.shape.longest = std::max<std::int64_t>(most.shape.longest, longest_of(item));
    most_sequences = std::max<std::int64_t>(most_sequences, count_of(item));
  };
  if (const auto& chosen = options.items; chosen) {
    for (const std::int64_t item : *chosen) consider(item);
  } else {
    for (std::size_t i = 0; i < tokens.size(); ++i) consider(static_cast<std::int64_t>(i));
  }
  most.shape.sequences = units * schedule.max_items_per_unit() * most_sequences;
  most.shape.padded =
      std::max(most.shape.padded, units * most_sequences * most.shape.longest);  // the longest item in a separate row
  return most;
}

}  // namespace qft::loader

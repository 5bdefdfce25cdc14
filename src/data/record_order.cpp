#include "qft/data/record_order.h"

#include "qft/core/error.h"
#include "qft/data/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace qft::data {
namespace {

// Streams of Order that tell draws from everything else made of the same seed.
constexpr std::uint64_t kDrawStream = 0x64726177;  // "draw"

// SplitMix64 (Steele, Lea and Flood, 2014) of a counter: a uniform number in [0, 1).
double uniform(std::uint64_t seed, std::uint64_t counter) {
  std::uint64_t z = seed * 0xD1342543DE82EF95u + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

void check_probabilities(const MixOptions& mix, std::size_t datasets) {
  const std::vector<double>& p = mix.probabilities;
  if (p.size() != datasets) fail_config("interleave_probs has {} values for {} datasets", p.size(), datasets);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  if (std::abs(sum - 1.0) > 1e-6) fail_config("interleave_probs sum to {}, not to 1", sum);
  if (mix.strategy != "interleave_under" && *std::min_element(p.begin(), p.end()) <= 0)
    fail_config("interleave_probs: with {} each dataset needs a probability above 0, or it is never used up",
                mix.strategy);
}

}  // namespace

RecordOrder::Draw RecordOrder::draw(const DatasetExtent& extent, std::uint64_t seed, std::size_t dataset) {
  Draw result;
  result.size = extent.num_samples.value_or(extent.records);
  if (extent.num_samples && *extent.num_samples != extent.records) {
    const Order order(extent.records, seed, dataset, kDrawStream);
    const std::int64_t copies = result.size / extent.records, rest = result.size % extent.records;
    result.records.reserve(static_cast<std::size_t>(result.size));
    for (std::int64_t i = 0; i < rest; ++i) result.records.push_back(order(i));
    for (std::int64_t i = 0; i < extent.records; ++i)
      result.records.insert(result.records.end(), static_cast<std::size_t>(copies), i);
    std::sort(result.records.begin(), result.records.end());
  }
  result.size = std::min(result.size, extent.max_samples.value_or(result.size));
  return result;
}

RecordOrder::RecordOrder(const std::vector<DatasetExtent>& datasets, const MixOptions& mix) {
  for (std::size_t d = 0; d < datasets.size(); ++d) draws_.push_back(draw(datasets[d], mix.seed, d));
  is_interleaved_ = mix.strategy != "concat" && datasets.size() > 1;
  if (is_interleaved_) {
    interleave(mix);
    size_ = static_cast<std::int64_t>(interleaved_.size());
  } else {
    for (const Draw& d : draws_) size_ += d.size;
  }
}

void RecordOrder::interleave(const MixOptions& mix) {
  const std::size_t n = draws_.size();
  const bool in_turns = mix.probabilities.empty();
  const bool under = mix.strategy == "interleave_under", once = mix.strategy == "interleave_once";
  if (!in_turns) check_probabilities(mix, n);
  std::vector<std::int64_t> next(n, 0);
  std::vector<bool> used_up(n, false);
  std::size_t num_used_up = 0;
  for (std::uint64_t i = 0;; ++i) {
    // Taking turns, a round that was begun is finished.
    if ((!in_turns || i % n == 0) && num_used_up >= (under ? 1 : n)) return;
    std::size_t d = static_cast<std::size_t>(i % n);
    if (!in_turns) {
      double u = uniform(mix.seed, i);
      for (d = 0; d + 1 < n && u >= mix.probabilities[d]; ++d) u -= mix.probabilities[d];
    }
    if (once && used_up[d]) continue;
    interleaved_.push_back({static_cast<std::int32_t>(d), next[d]});
    if (++next[d] == draws_[d].size) {
      next[d] = 0;
      num_used_up += !used_up[d];
      used_up[d] = true;
    }
  }
}

RecordRef RecordOrder::at(std::int64_t position) const {
  QFT_ASSERT(position >= 0 && position < size_, "position {} of {}", position, size_);
  RecordRef ref{0, position};
  if (is_interleaved_)
    ref = interleaved_[static_cast<std::size_t>(position)];
  else
    for (; ref.record >= draws_[static_cast<std::size_t>(ref.dataset)].size; ++ref.dataset)
      ref.record -= draws_[static_cast<std::size_t>(ref.dataset)].size;
  ref.record = draws_[static_cast<std::size_t>(ref.dataset)].at(ref.record);
  return ref;
}

}  // namespace qft::data

#include "qft/loader/item_choice.h"

#include "qft/core/error.h"
#include "qft/encode/item.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "order.h"

namespace qft::loader {
namespace {

/// Stream of Order. A draw of an item adds the item's number times kDraws, and the draw's number.
constexpr std::uint64_t kChoiceStream = 0x63686f6963650000u, kDraws = 4096;

SequenceTable table_of(const pack::PackReader& pack, config::SampleKind kind) {
  SequenceTable table{pack.sequence_tokens(), pack.item_offsets(), {}};
  const std::vector<std::string> tags = pack.item_tags();
  table.positives.reserve(tags.size());
  for (std::size_t i = 0; i < tags.size(); ++i) try {
      table.positives.push_back(static_cast<std::int32_t>(
          encode::positives_of(kind, table.offsets[i + 1] - table.offsets[i], pack::tags_from_json(tags[i]))));
    } catch (const Error& e) {
      fail("'{}', item {}: {}", pack.path().string(), i, e.what());
    }
  return table;
}

/// Returns the sum of the `count` largest tokens.
std::int64_t largest(std::span<const std::int64_t> tokens, std::int64_t count) {
  std::vector<std::int64_t> sorted(tokens.begin(), tokens.end());
  std::ranges::sort(sorted, std::greater<>());
  return std::accumulate(sorted.begin(), sorted.begin() + std::min<std::int64_t>(count, std::ssize(sorted)), std::int64_t{0});
}

}  // namespace

ItemChoice::ItemChoice(const pack::PackReader& pack, const config::ItemLimits& limits, std::uint64_t seed) try
    : ItemChoice(table_of(pack, limits.sample), limits, seed) {
} catch (const ConfigError& e) {
  fail_config("'{}', {}", pack.path().string(), e.what());
}

ItemChoice::ItemChoice(SequenceTable table, const config::ItemLimits& limits, std::uint64_t seed)
    : table_(std::move(table)), limits_(limits), seed_(seed) {
  const auto items = std::ssize(table_.positives);
  for (std::int64_t i = 0; i < items; ++i) {
    require_negatives(i);
    const auto begin = table_.tokens.begin() + table_.offsets[index(i)],
               end = table_.tokens.begin() + table_.offsets[index(i) + 1];
    const std::int64_t most = most_tokens_of(i);
    require(most <= std::numeric_limits<std::int32_t>::max(), "item {}: {} tokens in a step: lower the limits of its documents",
            i, most);
    most_tokens_.push_back(static_cast<std::int32_t>(most));
    counts_.push_back(static_cast<std::int32_t>(sequences(i, 0).size()));
    longest_.push_back(static_cast<std::int32_t>(*std::max_element(begin, end)));
  }
}

std::int32_t ItemChoice::sequences_of(std::int64_t item) const {
  return static_cast<std::int32_t>(table_.offsets[index(item) + 1] - table_.offsets[index(item)]);
}

void ItemChoice::require_negatives(std::int64_t item) const {
  const std::int32_t positives = table_.positives[index(item)], all = sequences_of(item);
  if (!ranks() && limits_.negatives.value_or(0) > 0 && all == 1 + positives)
    fail_config("item {}: it has no negatives, but {} are asked for: leave infonce_hard_negatives out, or remove the record",
                item, *limits_.negatives);
  if (ranks() && limits_.groups && drawn_groups(item, 0).empty())
    fail_config(
        "item {}: no document is left of {} positive and {} negative ones: raise max_positive_samples or max_negative_samples",
        item, positives, all - positives);
}

std::vector<std::int32_t> ItemChoice::draw(std::int32_t first, std::int32_t count, std::int64_t wanted, std::int64_t item,
                                           std::uint64_t epoch, std::uint64_t stream) const {
  const Order order(count, seed_, epoch, kChoiceStream + static_cast<std::uint64_t>(item) * kDraws + stream);
  std::vector<std::int32_t> drawn;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(wanted, count); ++i)
    drawn.push_back(first + static_cast<std::int32_t>(order(i)));
  std::ranges::sort(drawn);  // as in the data
  return drawn;
}

std::vector<std::int32_t> ItemChoice::drawn_groups(std::int64_t item, std::uint64_t epoch) const {
  const std::int32_t positives = table_.positives[index(item)], negatives = sequences_of(item) - positives;
  const std::int64_t limit = limits_.negatives.value_or(negatives);
  if (positives == 0) return draw(0, negatives, limit, item, epoch, 1);
  std::vector<std::int32_t> all;
  std::uint64_t stream = 0;
  for (const std::int32_t positive : draw(0, positives, *limits_.groups, item, epoch, stream++)) {
    all.push_back(positive);
    const auto others = draw(positives, negatives, limit, item, epoch, stream++);
    all.insert(all.end(), others.begin(), others.end());
  }
  return all;
}

std::vector<std::int32_t> ItemChoice::sequences(std::int64_t item, std::uint64_t epoch) const {
  if (ranks() && limits_.groups) return drawn_groups(item, epoch);
  std::vector<std::int32_t> all(index(sequences_of(item)));
  std::iota(all.begin(), all.end(), 0);
  if (ranks() || !limits_.negatives) return all;
  const auto before = index(1 + table_.positives[index(item)]), negatives = all.size() - before;
  for (std::size_t n = negatives; n < index(*limits_.negatives); ++n) all.push_back(all[before + n % negatives]);
  all.resize(before + index(*limits_.negatives));
  return all;
}

std::int64_t ItemChoice::tokens(std::int64_t item, std::uint64_t epoch) const {
  std::int64_t sum = 0;
  for (const std::int32_t sequence : sequences(item, epoch)) sum += table_.tokens[index(table_.offsets[index(item)] + sequence)];
  return sum;
}

std::int64_t ItemChoice::most_tokens_of(std::int64_t item) const {
  if (!ranks() || !limits_.groups) return tokens(item, 0);
  const std::span all = std::span(table_.tokens).subspan(index(table_.offsets[index(item)]), index(sequences_of(item)));
  const auto positives = index(table_.positives[index(item)]);
  const std::int64_t groups = std::min<std::int64_t>(*limits_.groups, std::ssize(all.first(positives)));
  const std::int64_t negatives = largest(all.subspan(positives), limits_.negatives.value_or(std::ssize(all)));
  return largest(all.first(positives), groups) + std::max<std::int64_t>(groups, positives == 0 ? 1 : 0) * negatives;
}

std::shared_ptr<const ItemChoice> make_choice(const pack::PackReader& pack, const std::optional<config::ItemLimits>& limits,
                                              std::uint64_t seed) {
  return limits ? std::make_shared<const ItemChoice>(pack, *limits, seed) : nullptr;
}

}  // namespace qft::loader

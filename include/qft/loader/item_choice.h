// The sequences of an item that take part in a step, for packs whose items have varying numbers of sequences.
#pragma once

#include "qft/config/stages.h"
#include "qft/pack/reader.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace qft::loader {

/// Sizes of items with varying numbers of sequences, for bounds.
struct ItemSequences {
  std::span<const std::int32_t> counts;   ///< [items] sequences that take part
  std::span<const std::int32_t> longest;  ///< [items] tokens of the item's longest sequence
};

/// The lengths of a pack's items, by sequence.
struct SequenceTable {
  std::vector<std::int64_t> tokens;     ///< [sequences]
  std::vector<std::int64_t> offsets;    ///< [items + 1] into `tokens`
  std::vector<std::int32_t> positives;  ///< [items], encode::positives_of()
};

/// A function of seed, epoch and item number alone: the same on any number of ranks and after a resume. Immutable, thread-safe.
class ItemChoice {
 public:
  /// Reads the pack's table. Throws Error if an item has no valid tag encode::kPositivesTag; ConfigError if the limits leave no
  /// sequence of an item, or ask for negatives of an item that has none.
  ItemChoice(const pack::PackReader& pack, const config::ItemLimits& limits, std::uint64_t seed);
  ItemChoice(SequenceTable table, const config::ItemLimits& limits, std::uint64_t seed);

  /// Returns the item's sequences that take part, as indices in the item. A sequence may occur several times. texts: the anchor,
  /// the positives, the negatives. ranking: groups of a positive and its negatives (an item without positives is one group of
  /// negatives); without a limit of groups, all sequences.
  std::vector<std::int32_t> sequences(std::int64_t item, std::uint64_t epoch) const;
  /// Returns the tokens of these sequences.
  std::int64_t tokens(std::int64_t item, std::uint64_t epoch) const;
  /// True if the sequence of the item is a positive document of a ranking.
  bool is_positive(std::int64_t item, std::int32_t sequence) const { return sequence < table_.positives[index(item)]; }
  bool ranks() const { return limits_.sample == config::SampleKind::ranking; }
  const config::ItemLimits& limits() const { return limits_; }

  /// [items] The most tokens of each item in any epoch.
  std::span<const std::int32_t> most_tokens() const { return most_tokens_; }
  ItemSequences sizes() const { return {counts_, longest_}; }

 private:
  static std::size_t index(std::int64_t item) { return static_cast<std::size_t>(item); }
  std::int32_t sequences_of(std::int64_t item) const;
  std::vector<std::int32_t> draw(std::int32_t first, std::int32_t count, std::int64_t wanted, std::int64_t item,
                                 std::uint64_t epoch, std::uint64_t stream) const;
  std::vector<std::int32_t> drawn_groups(std::int64_t item, std::uint64_t epoch) const;
  std::int64_t most_tokens_of(std::int64_t item) const;
  void require_negatives(std::int64_t item) const;

  SequenceTable table_;
  config::ItemLimits limits_;
  std::uint64_t seed_;
  std::vector<std::int32_t> most_tokens_, counts_, longest_;
};

/// Returns the choice from a pack's items; null without limits.
std::shared_ptr<const ItemChoice> make_choice(const pack::PackReader& pack, const std::optional<config::ItemLimits>& limits,
                                              std::uint64_t seed);

}  // namespace qft::loader

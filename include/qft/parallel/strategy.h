// What a strategy splits over the ranks: the one table that stores, schedules and costs are made from.
#pragma once

#include <string>
#include <string_view>

namespace qft::parallel {

/// ZeRO's stages (Rajbhandari et al. 2020) and their names in FSDP. Frozen weights have neither gradients nor optimizer
/// state, and are sharded where `weights` says so.
struct Strategy {
  std::string_view name;
  bool optimizer = false;     ///< each rank updates its own slice of the trainable weights
  bool gradients = false;     ///< reduced gradients exist only as that slice, added up group after group
  bool weights = false;       ///< between uses a rank holds only its slice of the weights
  bool keep_weights = false;  ///< what was gathered for the forward pass stays for the backward pass
  bool grouped = false;       ///< slices within groups of ranks, the groups are replicas of each other

  /// Every group of micro-batches ends in a reduction: gradients do not stay whole between groups.
  bool reduce_every_group() const { return gradients; }
  bool sharded() const { return optimizer; }
};

/// The row of a strategy's name; throws ConfigError naming the known ones.
const Strategy& strategy_of(std::string_view name);

}  // namespace qft::parallel

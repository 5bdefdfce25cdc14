// What a strategy splits over the ranks: the one table that stores, schedules and costs are made from.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qft::parallel {

/// ZeRO's stages (Rajbhandari et al. 2020) and their names in FSDP. Frozen weights have neither gradients nor optimizer
/// state, and are sharded where `weights` says so.
struct Strategy {
  std::string_view name;
  bool optimizer = false;             ///< each rank updates its own slice of the trainable weights
  bool gradients = false;             ///< reduced gradients exist only as that slice, added up group after group
  bool weights = false;               ///< between uses a rank holds only its slice of the weights
  bool reshard_after_forward = true;  ///< what forward gathered is released, and gathered again for backward
  bool grouped = false;               ///< slices within groups of ranks, the groups are replicas of each other

  /// Every group of micro-batches ends in a reduction: gradients do not stay whole between groups.
  bool reduce_every_group() const { return gradients; }
  bool sharded() const { return optimizer; }
  /// Weights and gradients stay at the same addresses from the first step on, as CUDA graphs need.
  bool stays_put() const { return !gradients && !weights; }
};

/// What lives in host memory between uses. On the CPU, whose memory is the host's, nothing needs to.
struct Offload {
  bool optimizer = false;  ///< masters, optimizer state and the gradients that they are updated with
  bool weights = false;
  bool activations = false;  ///< with recomputation: the layers' inputs
  bool any() const { return optimizer || weights || activations; }
};

/// `strategy` as the stores run it with `offload`. Gradients of an offloaded optimizer are reduced to their owner after every
/// group, as under zero2; where nothing is sharded, each rank is a shard group of its own and owns everything.
Strategy with_offload(Strategy strategy, const Offload& offload);

/// All rows, from the least sharded to the most.
std::span<const Strategy> strategies();

/// The row of a strategy's name; throws ConfigError naming the known ones.
const Strategy& strategy_of(std::string_view name);

}  // namespace qft::parallel

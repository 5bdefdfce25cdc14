// How a strategy splits state over the ranks: the single table from which stores, schedules and costs are made.
#pragma once

#include "qft/comm/mesh.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qft::parallel {

/// ZeRO stages (Rajbhandari et al. 2020) and their names in FSDP. Frozen weights have neither gradients nor optimizer state; they
/// are sharded if `weights` is true.
struct Strategy {
  std::string_view name;
  bool optimizer = false;             ///< each rank updates its own slice of the trainable weights
  bool gradients = false;             ///< reduced gradients exist only as that slice, summed over groups of micro-batches
  bool weights = false;               ///< between uses a rank holds only its slice of the weights
  bool reshard_after_forward = true;  ///< release weights gathered for forward, and gather them again for backward
  bool grouped = false;               ///< shard within groups of ranks; the groups are replicas of each other

  /// True if each group of micro-batches ends with a reduction, because gradients do not stay whole between groups.
  bool reduce_every_group() const { return gradients; }
  bool sharded() const { return optimizer; }
  /// True if weights and gradients keep their addresses from the first step on, as CUDA graphs need.
  bool has_fixed_addresses() const { return !gradients && !weights; }
};

/// State kept in host memory between uses. Not needed on the CPU, where device memory is host memory.
struct Offload {
  bool optimizer = false;  ///< master weights, optimizer state and the gradients of the update
  bool weights = false;
  bool activations = false;  ///< with recomputation: the layers' inputs
  bool any() const { return optimizer || weights || activations; }
};

/// Returns `strategy` as the stores run it with `offload`. Gradients of an offloaded optimizer are reduced to their owner after
/// every group, as under zero2. If nothing is sharded, each rank forms a shard group alone and owns everything.
Strategy with_offload(Strategy strategy, const Offload& offload);

/// Approximate bucket size of the replicated store's gradient all-reduces, in bytes.
inline constexpr std::int64_t kBucketBytes = 25 << 20;

/// How gradients are summed. as_ready: during the backward pass, in an order that depends on the ranks. by_micro_batch: each
/// micro-batch ends with its reduce(), and a binary tree over all micro-batches gives the sum, so its bits do not depend on the
/// number of ranks; this keeps up to 2 log2(micro-batches of a rank) partial sums.
enum class ReductionOrder : std::uint8_t { as_ready, by_micro_batch };

/// How the ranks hold and exchange a model's weights, gradients and optimizer state.
struct Sharding {
  Strategy strategy = {"ddp"};  ///< as the stores run it: after with_offload()
  Offload offload = {};
  int shard_ranks = 1;    ///< data ranks that share one copy of the weights
  int replicas = 1;       ///< data ranks that hold the same shard
  int context_ranks = 1;  ///< ranks that share a data rank's sequences
  int tensor_ranks = 1;   ///< ranks that share a data rank's matrices
  ReductionOrder reduction_order = ReductionOrder::as_ready;
  std::int64_t bucket_bytes = kBucketBytes;
  std::int64_t prefetch_budget = 0;  ///< bytes of weights gathered ahead

  comm::Degrees degrees() const;
};

/// Returns how `ranks` data ranks run a row of strategies(). `group_ranks`: ranks that share one copy under a grouped strategy.
/// Throws ConfigError if it does not divide `ranks`, which the message calls `noun`.
Sharding make_sharding(const Strategy& strategy, const Offload& offload, int ranks, std::int64_t group_ranks,
                       std::string_view noun = "rank");

/// Describes the sharding: "zero3: 8 ranks = 2 copies x 4 shards; offloaded to host memory: optimizer".
std::string describe(const Sharding& sharding);

/// Returns all rows, from the least to the most sharded.
std::span<const Strategy> strategies();

/// Returns the row with this name; throws ConfigError with the known names if there is none.
const Strategy& strategy_of(std::string_view name);

}  // namespace qft::parallel

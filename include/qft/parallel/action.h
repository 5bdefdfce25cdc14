// A training step as data. A schedule is a pure function from the shape of the work to a list of actions. The executor interprets
// the list, and cost predictions read the same list.
#pragma once

#include "qft/model/spec.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::parallel {

enum class ActionKind : std::uint8_t {
  gather,         ///< unit: prefetch its weights
  gather_frozen,  ///< unit: prefetch only its frozen weights, for the next step
  acquire,        ///< unit: its weights are readable until the matching release; gathers weights that were not prefetched
  forward,        ///< block, micro
  backward,       ///< block, micro: adds to the gradients of the block's units
  join_exchange,  ///< block: no micro-batch on this rank; only takes part in the collectives of the layer's forward pass
  release,        ///< unit: the last release frees its gathered weights
  reduce,         ///< unit: its gradients are complete on this rank (for the group or the step): start their reduction
  vote,           ///< all ranks exchange stop requests; if any rank is asked to stop, the rest of the step is dropped
  step            ///< the end: waits for the reductions; the ranks agree on norm, loss and metrics
};

/// A path through the blocks.
enum class Lane : std::uint8_t {
  policy,    ///< the model that trains
  reference  ///< the model without its adapter: forward only, no dropout
};

/// Purpose of a gather. Passes of a layer need only the experts that its routers select: forward learns which during the pass,
/// backward uses the same experts (WeightStore::gather_experts).
enum class GatherPurpose : std::uint8_t { all, forward, backward };

struct Action {
  ActionKind kind;
  int target = -1;  ///< block for forward, backward and join_exchange; unit for the others
  // Fields of forward and backward:
  int micro = -1;      ///< index of the micro-batch within the step
  bool first = false;  ///< the micro-batch's first action: opens it
  bool last = false;   ///< the micro-batch's last action: frees its memory
  /// forward: this block's backward follows; backward: the block below needs the gradient of this block's input
  bool needs_gradient = false;
  Lane lane = Lane::policy;
  GatherPurpose purpose = GatherPurpose::all;  ///< for gather, gather_frozen and acquire
  bool operator==(const Action&) const = default;
};

using ActionList = std::vector<Action>;

/// Describes the action for logs and traces: "forward(layer 3, micro 1)". Names the lane unless the lane is policy.
std::string describe(const Action& action, const model::ModelSpec& spec);

/// How a rank orders and computes the micro-batches of its steps.
struct Schedule {
  std::int64_t group = 1;             ///< most micro-batches that pass a block per acquire; 1 = depth-first
  bool reduce_every_group = false;    ///< true: gradients are reduced after each group (sharded gradients); false: once per step
  bool reshard_after_forward = true;  ///< release gathered weights after forward and gather them again for backward
  bool reference = false;             ///< add a reference lane; it passes each block before the policy, under the same acquire
  bool recompute = false;             ///< keep only the layers' inputs and run forward again before backward
  bool offload_inputs = false;        ///< with recompute: keep the inputs in host memory
  std::int64_t head_rows = 0;         ///< rows of logits held at a time; 0: ops::head_chunk_rows()
  bool graphs = false;                ///< run layers as graphs in training steps; requires Strategy::has_fixed_addresses()
};

/// Returns the schedule of one micro-batch in flight that suits a sharding.
Schedule make_schedule(const Sharding& sharding);

/// The micro-batches of one step or evaluation.
struct MicroBatches {
  int here = 1;             ///< on this rank; may be 0
  int most = 1;             ///< maximum of `here` over all ranks: gives every rank the same number of groups
  int groups_per_vote = 0;  ///< groups between votes, with a vote before the first; 0: vote only at the end of the step
};

/// Returns the number of groups into which a step of `most` micro-batches is divided.
int groups_of(const Schedule& schedule, int most);

/// Returns how many groups pass between two votes in a step of `groups` groups that takes about `seconds`. Votes are at least two
/// seconds apart, because ranks wait for each other in a vote. Returns 0 (no vote within the step) for short steps. Equal
/// arguments give equal results, so pass the same arguments on every rank.
int groups_per_vote(double seconds, int groups);

/// Returns the training step: for each group, all blocks forward, then backward. Backward stops at the lowest trainable block. A
/// tied embedding stays acquired from the first block to the head. Every rank gets the same sequence of acquire, release and
/// reduce, whatever its own number of micro-batches, and the same number of forward passes of layers with experts
/// (`join_exchange` where a rank has no micro-batch). Collectives therefore always match.
ActionList training_actions(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& micro_batches);

/// Returns the forward passes alone (evaluation).
ActionList evaluation_actions(const model::ModelSpec& spec, const Schedule& schedule, const MicroBatches& micro_batches);

/// Bytes of a unit's gathered weights, and of its decoded weights between acquire and release; 0 for weights that every rank
/// keeps anyway.
struct GatheredBytes {
  std::int64_t frozen = 0, trainable = 0;
  std::int64_t decoded = 0;  ///< decoded copy of quantised weights
  std::int64_t gathered() const { return frozen + trainable; }
  std::int64_t total() const { return gathered() + decoded; }
};

/// Returns `list` with prefetches inserted. After each acquire and release it gathers the units that are acquired next, while the
/// prefetched units take at most `prefetch_budget` bytes (one unit is always allowed). A unit that is needed again within the
/// budget is not released in between. A training step ends by prefetching the frozen weights that the next step starts with. The
/// result is the same on every rank.
ActionList insert_prefetches(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget);

}  // namespace qft::parallel

// A training step as data: a schedule is a pure function from the shape of the work to a list of actions; the executor
// interprets the list, and whatever predicts cost reads the same list.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>
#include <string>
#include <vector>

namespace qft::parallel {

enum class ActionKind : std::uint8_t {
  gather,         ///< unit: prefetch its weights
  gather_frozen,  ///< unit: prefetch only its frozen weights, for the next step
  acquire,        ///< unit: its weights are readable until the matching release; gathers what was not prefetched
  forward,        ///< block, micro
  backward,       ///< block, micro: adds to the gradients of the block's units
  absent,   ///< block: a forward pass that other ranks do and this one has no micro-batch for: its part of what they agree on
  release,  ///< unit: the last release frees its gathered weights
  reduce,   ///< unit: its gradients are complete on this rank (for the group or the step): start their reduction
  vote,     ///< the ranks tell each other who is asked to stop: if one is, the rest of the step is dropped
  step      ///< the end: reductions are complete, and the ranks agree on norm, loss and metrics
};

/// A way through the blocks.
enum class Lane : std::uint8_t {
  policy,    ///< the model that trains
  reference  ///< the model without its adapter: forward only, and without dropout
};

/// What a unit's weights are gathered for. Passes of a layer need the experts that its routers name on the way, forward, and
/// backward the same ones (WeightStore::need_experts).
enum class Need : std::uint8_t { all, forward, backward };

struct Action {
  ActionKind kind;
  int target = -1;  ///< block for forward, backward and absent, unit for the others
  // Of forward and backward:
  int micro = -1;               ///< index of the micro-batch within the step
  bool first = false;           ///< the micro-batch's first action: it is in flight from here on
  bool last = false;            ///< the micro-batch's last action: its memory is freed
  bool needs_gradient = false;  ///< forward: this block's backward follows; backward: the block below needs the input's gradient
  Lane lane = Lane::policy;
  Need need = Need::all;  ///< of gathers and acquire
  bool operator==(const Action&) const = default;
};

using ActionList = std::vector<Action>;

/// "forward(layer 3, micro 1)", with its lane if that is not the policy; for logs and traces.
std::string describe(const Action& action, const model::ModelSpec& spec);

/// What a schedule depends on besides the model.
struct ScheduleOptions {
  int micro_batches = 1;              ///< of this rank; may be 0
  int max_micro_batches = 1;          ///< micro-batches of the rank that has most: fixes the number of groups everywhere
  int group = 1;                      ///< micro-batches that pass a block per acquire; 1 = depth-first
  bool reduce_every_group = false;    ///< true: gradients do not stay whole between groups (sharded); false: once a step
  bool reshard_after_forward = true;  ///< gathered weights are released after forward and gathered again for backward
  int groups_per_vote = 0;            ///< a vote before every so many groups; 0: none but that of the step's end
  bool reference = false;  ///< a reference lane beside the policy's: before it through each block, under the same acquire
};

/// How often the ranks vote in a step of `groups` that takes about `seconds`: every two seconds or more, for they wait for
/// each other; not at all where the step's end comes soon. Alike on every rank where the arguments are.
int groups_per_vote(double seconds, int groups);

/// The training step: for every group, all blocks up (forward) and down (backward). Blocks below the lowest
/// trainable one take no part in the way down. What the first block and the head share (a tied embedding) is held from the one
/// to the other. Every rank gets the same sequence of acquire, release and reduce,
/// whatever its own number of micro-batches, and as many forward passes of layers with experts, where some may be absent: so
/// collectives always match.
ActionList training_schedule(const model::ModelSpec& spec, const ScheduleOptions& options);

/// Forward only (evaluation).
ActionList evaluation_schedule(const model::ModelSpec& spec, const ScheduleOptions& options);

/// Bytes that a unit's weights take once gathered, and from acquire to release; 0 for what every rank holds anyway.
struct GatheredBytes {
  std::int64_t frozen = 0, trainable = 0;
  std::int64_t decoded = 0;  ///< of quantised weights
  std::int64_t gathered() const { return frozen + trainable; }
  std::int64_t total() const { return gathered() + decoded; }
};

/// The list with prefetches: after each acquire and release it gathers the units that are acquired next, as long as prefetched
/// units take at most `prefetch_budget` bytes (one unit always may). A unit that is needed again within the budget
/// is not released in between. A training step ends by prefetching the frozen weights that the next one starts with.
/// Alike on every rank.
ActionList with_gathers(const ActionList& list, const std::vector<GatheredBytes>& units, std::int64_t prefetch_budget);

}  // namespace qft::parallel

// What a rank needs to hold, predicted from the action list that runs.
#pragma once

#include "qft/config/run_config.h"
#include "qft/loader/batch_bounds.h"
#include "qft/model/spec.h"
#include "qft/ops/attention.h"
#include "qft/optim/precision.h"
#include "qft/optim/rule.h"
#include "qft/parallel/action.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::plan {

/// Bytes of one rank, at the moment of the step when each is largest.
struct MemoryPlan {
  std::int64_t weights = 0;      ///< kept between uses
  std::int64_t gathered = 0;     ///< gathered from other ranks or host memory, in use or prefetched
  std::int64_t gradients = 0;    ///< kept over the step, and in flight to their owners
  std::int64_t optimizer = 0;    ///< masters, and what the rule keeps beside them
  std::int64_t activations = 0;  ///< of all micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations, and of one layer that is recomputed
  std::int64_t reference = 0;    ///< all of a reference with weights of its own: these, gathered ones, activations, buffers, rows
  std::int64_t apart =
      0;  ///< what a device's memory needs less, because gathered weights, gradients and temporaries peak at different times
  std::int64_t host = 0;  ///< what is offloaded to host memory; not in total()

  /// What is allocated before the first step: exact, not an estimate.
  std::int64_t state() const { return weights + optimizer; }
  std::int64_t total() const { return weights + gathered + gradients + optimizer + activations + buffers + reference - apart; }
};

/// "weights 1.2 GB, gathered 0.3 GB, ...": the parts that are not zero, largest first.
std::string describe(const MemoryPlan& plan);

/// The largest micro-batches of the run.
using Batches = loader::BatchBounds;

/// What a run trains.
struct Recipe {
  model::ModelSpec spec;
  optim::Precision precision;
  parallel::ObjectiveTraits objective;                   ///< `reference`: of a lane
  std::optional<model::ModelSpec> reference_model = {};  ///< a reference with weights of its own
};

/// One way to execute a run, with all that a rank's memory and time depend on: model, strategy, micro-batches.
struct ExecutionConfig {
  const model::ModelSpec& spec;
  optim::Precision precision;
  const optim::RuleSpec& rule;  ///< of the optimizer
  parallel::Strategy strategy;  ///< with_offload() already
  parallel::Offload offload;
  int shard_ranks = 1;  ///< ranks that share one copy
  int replicas = 1;     ///< ranks that hold the same slices
  bool training = true;
  bool recompute = true;
  bool lora_dropout = false;
  std::int64_t tokens = 0;             ///< of a micro-batch
  std::int64_t group = 1;              ///< micro-batches in flight
  std::int64_t micro_batches = 0;      ///< of the rank that has most in a step; 0: not known
  std::int64_t evaluation_tokens = 0;  ///< as in Batches
  std::int64_t prefetch_budget = 0;    ///< bytes gathered ahead; 0: default_prefetch_budget()
  std::int64_t partial_sums = 0;       ///< gradient sums kept at once in ReductionOrder::by_micro_batch
  std::int64_t labels = 0;             ///< of a micro-batch; 0: each of its tokens
  std::int64_t head_rows = 0;          ///< of logits held at a time; 0: ops::head_chunk_rows()
  bool graphs = false;                 ///< layers run as graphs; `tokens` are padded
  std::int64_t sequences = 0;          ///< of a micro-batch; 0: not known, one
  std::int64_t longest = 0;            ///< of its sequences, and all of them padded to it: as in ops::PackedSizes
  std::int64_t padded = 0;
  std::int64_t expanded = 0;
  bool on_cpu = true;  ///< where products have scratch of their own
  ops::AttentionPath attention = ops::AttentionPath::cpu;
  bool plain_operations = false;  ///< no kernels of our own: ops::generic::takes()
  parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local;
  bool reference = false;       ///< lists have a reference lane
  bool reference_rows = false;  ///< a reference's rows of logits stand beside the policy's, a lane's or its own model's
  /// A reference with weights of its own under the same strategy: it scores a step's micro-batches in one pass before it.
  const model::ModelSpec* reference_model = nullptr;
  optim::Hyper hyper = {};  ///< of the optimizer
};

/// What a run does to save memory at the cost of time.
struct MemoryPolicy {
  bool recompute = true;
  std::int64_t head_rows = 0;  ///< as in ExecutionConfig
};

/// The policies that a run may use, the fastest first: one, as its keys say, or several with max_memory.
std::vector<MemoryPolicy> policies_of(const config::RunConfig& config);

/// The most partial gradient sums that are kept at once while so many micro-batches are summed in a binary tree.
std::int64_t partial_sums(std::int64_t micro_batches);

/// Elements of a buffer of `n` that divides evenly over `ranks`, padding included.
std::int64_t padded_numel(std::int64_t n, int ranks);

/// The bytes that gathering each unit allocates.
std::vector<parallel::GatheredBytes> gathered_bytes(const ExecutionConfig& run);

/// The largest unit and four layers: the layers are computed while the unit is gathered (a tied embedding, between forward and
/// backward).
std::int64_t default_prefetch_budget(const model::ModelSpec& spec, const std::vector<parallel::GatheredBytes>& units);

MemoryPlan plan_memory(const ExecutionConfig& run);

/// The forward passes of `run.reference_model`.
ExecutionConfig reference_passes(const ExecutionConfig& run);

/// Copies that a rank holds while a checkpoint is written beside training: its masters and optimizer state, unless `model_only`,
/// and the tensors of the model or the adapter that it writes.
std::int64_t staged_bytes(const ExecutionConfig& run, bool model_only);

}  // namespace qft::plan

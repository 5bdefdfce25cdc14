// Predicts a rank's memory from the action list that runs.
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

/// Bytes of one rank. Each part has its peak value within a step.
struct MemoryPlan {
  std::int64_t weights = 0;      ///< kept between uses
  std::int64_t gathered = 0;     ///< gathered from other ranks or host memory, in use or prefetched
  std::int64_t gradients = 0;    ///< kept over the step, and in flight to their owners
  std::int64_t optimizer = 0;    ///< masters and optimizer state
  std::int64_t activations = 0;  ///< activations of all micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations, and of one recomputed layer
  std::int64_t reference = 0;    ///< everything of a reference with its own weights, gathered weights and rows included
  /// Subtracted: gathered weights, gradients and temporaries do not peak at the same time (device memory only).
  std::int64_t peak_overlap = 0;
  std::int64_t host = 0;  ///< offloaded to host memory; not in total()

  /// Returns the bytes allocated before the first step: exact, not an estimate.
  std::int64_t state() const { return weights + optimizer; }
  std::int64_t total() const {
    return weights + gathered + gradients + optimizer + activations + buffers + reference - peak_overlap;
  }
};

/// Returns "weights 1.2 GB, gathered 0.3 GB, ...": the nonzero parts, largest first.
std::string describe(const MemoryPlan& plan);

/// Bounds of the run's micro-batches.
using Batches = loader::BatchBounds;

/// What a run trains: model, element types, objective and reference.
struct Recipe {
  model::ModelSpec spec;
  optim::Precision precision;
  parallel::ObjectiveTraits objective;                   ///< `reference`: true if it is a lane
  std::optional<model::ModelSpec> reference_model = {};  ///< a reference with its own weights
};

/// One way to execute a run: everything that a rank's memory and time depend on.
struct ExecutionConfig {
  const model::ModelSpec& spec;
  optim::Precision precision;
  const optim::RuleSpec& rule;  ///< the optimizer's
  parallel::Strategy strategy;  ///< after with_offload()
  parallel::Offload offload;
  int shard_ranks = 1;  ///< ranks that share one copy of the weights
  int replicas = 1;     ///< ranks that hold the same shard
  bool training = true;
  bool recompute = true;
  bool lora_dropout = false;
  BatchShape shape = {};               ///< the largest micro-batch
  std::int64_t group = 1;              ///< micro-batches in flight
  std::int64_t micro_batches = 0;      ///< in a step, on the rank with most; 0: unknown
  std::int64_t evaluation_tokens = 0;  ///< as in Batches
  std::int64_t prefetch_budget = 0;    ///< bytes gathered ahead; 0: default_prefetch_budget()
  std::int64_t partial_sums = 0;       ///< gradient sums that ReductionOrder::by_micro_batch keeps at once
  std::int64_t head_rows = 0;          ///< rows of logits held at a time; 0: ops::head_chunk_rows()
  bool graphs = false;                 ///< layers run as CUDA graphs; `shape.tokens` are padded
  bool on_cpu = true;                  ///< products on the CPU have extra scratch
  ops::AttentionPath attention = ops::AttentionPath::cpu;
  bool plain_operations = false;  ///< no kernels of our own: ops::generic::runs_generic()
  parallel::ObjectiveKind objective = parallel::ObjectiveKind::row_local;
  bool reference = false;       ///< action lists have a reference lane
  bool reference_rows = false;  ///< the reference's rows of logits are held beside the policy's (lane or separate model)
  /// A reference with its own weights under the same strategy. It scores a step's micro-batches in one pass before the step.
  const model::ModelSpec* reference_model = nullptr;
  optim::Hyper hyper = {};  ///< the optimizer's
};

/// Settings that save memory at the cost of time.
struct MemoryPolicy {
  bool recompute = true;
  std::int64_t head_rows = 0;  ///< as in ExecutionConfig
};

/// Returns the policies that a run may use, the fastest first: one if its keys decide, several with max_memory.
std::vector<MemoryPolicy> policies_of(const config::RunConfig& config);

/// Returns the most partial gradient sums held at once while `micro_batches` are summed in a binary tree.
std::int64_t partial_sums(std::int64_t micro_batches);

/// Returns the elements of a buffer of `n` after padding to a multiple of `ranks`.
std::int64_t padded_numel(std::int64_t n, int ranks);

/// Returns the bytes that gathering each unit allocates.
std::vector<parallel::GatheredBytes> gathered_bytes(const ExecutionConfig& run);

/// Returns the bytes of the largest unit plus four layers: that many layers are computed while the unit is gathered (for example
/// a tied embedding, between forward and backward).
std::int64_t default_prefetch_budget(const model::ModelSpec& spec, const std::vector<parallel::GatheredBytes>& units);

/// Predicts the memory of one rank.
MemoryPlan plan_memory(const ExecutionConfig& run);

/// Returns the configuration of the forward passes of `run.reference_model`.
ExecutionConfig reference_passes(const ExecutionConfig& run);

/// Returns the bytes of copies that a rank holds while a checkpoint is written beside training: its masters and optimizer state
/// (unless `model_only`), and the tensors of the model or the adapter that it writes.
std::int64_t staged_bytes(const ExecutionConfig& run, bool model_only);

}  // namespace qft::plan

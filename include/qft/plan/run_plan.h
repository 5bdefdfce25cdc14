// One run, resolved: the run file, the model's files and the machine decide it once; nothing below this reads a RunConfig.
#pragma once

#include "qft/core/batch_shape.h"
#include "qft/model/spec.h"
#include "qft/model/sublayer.h"
#include "qft/model/transformer.h"
#include "qft/optim/precision.h"
#include "qft/optim/rule.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <memory>
#include <string>

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

/// The most memory that a rank needs, in bytes, beyond its process.
struct Footprint {
  MemoryPlan memory;
  std::int64_t staged = 0;   ///< host copies of a checkpoint that is written while training continues
  std::int64_t kernels = 0;  ///< compiled products on the CPU
  std::int64_t needed = 0;   ///< the part in device memory; on the CPU everything
  std::int64_t on_host = 0;  ///< the part in host memory; on the CPU 0
};

/// Checkpoints of a run, as far as they take memory.
struct Saving {
  bool enabled = false;
  bool async = false;       ///< written while training continues
  bool model_only = false;  ///< without masters and optimizer state
};

/// Everything that a rank's memory, time and results depend on, besides weights and data. resolve() fills the parts one after the
/// other: model and settings, then the work, then the execution and its prediction.
struct RunPlan {
  // The model and what trains it:
  bool training = true;  ///< false: forward passes only, without gradients and optimizer
  std::shared_ptr<const model::ModelSpec> spec;
  optim::Precision precision = {};
  std::string precision_reason = {};  ///< for inference: the key or file that decided `precision`; in training a note, or empty
  parallel::ObjectiveTraits objective = {};
  /// A reference with its own weights under the same strategy. It scores a step's micro-batches in one pass before the step.
  std::shared_ptr<const model::ModelSpec> reference_model = {};
  const optim::RuleSpec* rule = &optim::rule_of("adamw");  ///< the optimizer's
  optim::Hyper hyper = {};
  model::RandomPass random = {};  ///< of training steps
  parallel::Diagnostics diagnostics = {};
  Saving saving = {};

  // The work:
  bool decodes = false;                ///< forward passes may be those of a Decoder, in which each rank has all rows
  BatchShape shape = {};               ///< the largest micro-batch; with graphs its tokens are padded
  std::int64_t micro_batches = 0;      ///< in a step, on the rank with most; 0: unknown
  std::int64_t evaluation_tokens = 0;  ///< of the largest micro-batch of evaluations between the steps; 0: none
  std::int64_t partial_sums = 0;       ///< gradient sums that ReductionOrder::by_micro_batch keeps at once

  // The execution:
  parallel::Sharding sharding = {};  ///< `prefetch_budget` 0: the default of prefetch_budget()
  parallel::Schedule schedule = {};
  bool on_cpu = true;  ///< products on the CPU have extra scratch
  model::KernelChoice kernels = {};

  // The prediction for one rank:
  Footprint footprint = {};
  bool fits = true;
  std::int64_t process = 0;    ///< bytes of the process before it loads the model
  std::int64_t available = 0;  ///< bytes that the model may take, on the rank with the least; 0: unknown
  std::string reason = {};     ///< why this strategy, if the run file says auto

  /// Returns the predicted peak of the process, in bytes of device memory; on the CPU of host memory.
  std::int64_t predicted() const {
    return process + footprint.memory.total() + footprint.kernels + (on_cpu ? footprint.staged : 0);
  }
};

/// Returns the bytes of a model's or an adapter's tensors in files.
std::int64_t model_file_bytes(const model::ModelSpec& spec, const optim::Precision& precision);

/// Returns the bytes of one checkpoint on disk, summed over all ranks: masters and optimizer state (unless Saving::model_only)
/// and the model or the adapter. Does not count files that do not grow with the model (tokenizer, logs, manifest).
std::int64_t checkpoint_bytes(const RunPlan& run);

}  // namespace qft::plan

// Interprets action lists: the one place that runs blocks, holds activations and issues collectives.
#pragma once

#include "qft/model/transformer.h"
#include "qft/parallel/action.h"
#include "qft/parallel/groups.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/step_result.h"
#include "qft/parallel/weight_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace qft::parallel {

/// Seconds of the host thread per kind of work, summed over run() calls.
struct PhaseTimes {
  double forward = 0, backward = 0, gather = 0, reduce = 0;
  double exchange = 0;  ///< of rows, within passes: not part of forward and backward
};

/// Returns whether this rank is asked to stop. Called when the ranks vote: at the end of the step (`step_done`), or between
/// groups, where true abandons the step.
using StopRequested = std::function<bool(bool step_done)>;

/// Receives the log-probabilities of a micro-batch's labels; valid only during the call.
using ObserveLogprobs = std::function<void(const Logprobs& logprobs)>;

/// Bytes that an executor holds. MemoryPlan predicts them under the same names.
struct ExecutorMemory {
  std::int64_t activations = 0;  ///< of the micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations and of a recomputed layer
};

/// Help for those who debug a run.
struct Diagnostics {
  std::string memory_advice = {};  ///< settings to change if memory runs out
  bool debug_sync = false;         ///< from the second training step on, throw Error if the host waits for its device
};

class AcquiredUnits;
struct HeadBlock;
class InFlight;
class MicroInFlight;

class Executor {
 public:
  /// The transformer, the store and `groups` must outlive the executor. `random`: the random numbers of training steps, without
  /// the step. Graphs require that it has no LoRA dropout.
  Executor(model::Transformer& transformer, WeightStore& store, const Groups& groups, const Schedule& schedule,
           const model::RandomPass& random, Diagnostics diagnostics);
  ~Executor();

  /// Runs a whole training step except the optimizer: the reduced gradients end up in the store. The all-reduce that ends the
  /// step, and each vote in the list, counts the ranks that are asked to stop. A step abandoned at a vote leaves nothing behind.
  /// Collective.
  ///
  /// `loss_scale` multiplies the gradients, also in the store; returned values are unscaled. `range` is the position of `micros`
  /// in the global batch; if it is set, loss and metrics are summed in the order of the micro-batches too.
  StepResult train(const ActionList& list, std::span<const model::MicroInput> micros, const Objective& objective,
                   std::uint64_t step, const StopRequested& stop_requested = {}, double loss_scale = 1.0,
                   const MicroRange& range = {});
  /// Runs forward up to the head. Returns for each micro-batch the hidden states of its labels' rows as the head reads them, [L,
  /// hidden]. Collective only if the store is, as evaluate().
  std::vector<at::Tensor> head_rows(const ActionList& list, std::span<const model::MicroInput> micros);
  /// Runs forward passes and calls `observe` for one micro-batch after the other. `objective` supplies row_values(); nullptr: no
  /// row values. `training_step`: uses the random numbers of that training step, so that the outputs are those of its forward
  /// passes; empty: no random numbers. Collective only if the store is.
  void evaluate(const ActionList& list, std::span<const model::MicroInput> micros, const ObserveLogprobs& observe,
                const Objective* objective = nullptr, std::optional<std::uint64_t> training_step = {});

  /// Runs `part` of a training step; `what` names it. With debug_sync, from the second step on, throws Error if `part` waits for
  /// the device.
  void without_waits(const std::function<std::string()>& what, const std::function<void()>& part) const;

  PhaseTimes take_times();
  ExecutorMemory memory() const;
  /// Returns how the layers ran; nullptr without graphs.
  const LayerGraphs* graphs() const { return graphs_.get(); }

 private:
  struct Pass;

  void interpret(const ActionList& list, Pass& pass);
  void perform(const Action& action, Pass& pass);
  void acquire(const Action& action);
  void gather_experts(int unit, std::span<const std::int64_t> begins);
  void forward(const Action& action, Pass& pass);
  void backward(const Action& action, Pass& pass);
  void reduce(int unit);
  void vote(Pass& pass);
  void step(Pass& pass);

  HeadBlock head_block(const Action& action, MicroInFlight& micro, const Pass& pass);
  MicroInFlight& open(const Action& action, const Pass& pass);
  void forward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void backward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void run(const LayerCall& call, const MicroInFlight& micro, const Pass& pass);
  std::string memory_held() const;

  model::Transformer& transformer_;
  WeightStore& store_;
  const Groups& groups_;
  model::RandomPass random_;
  Diagnostics diagnostics_;
  std::unique_ptr<AcquiredUnits> units_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<LayerGraphs> graphs_;
  PhaseTimes times_;
  bool warm_ = false;  ///< true once a training step has finished its one-time initialisation
};

}  // namespace qft::parallel

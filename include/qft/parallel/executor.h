// The interpreter of action lists: the one place where blocks run, activations live and collectives are issued.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/model/transformer.h"
#include "qft/parallel/action.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/step_result.h"
#include "qft/parallel/weight_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace qft::parallel {

/// Seconds of the host thread per kind of work, summed over run() calls.
struct PhaseTimes {
  double forward = 0, backward = 0, gather = 0, reduce = 0;
};

/// Returns whether this rank is asked to stop. Called where the ranks vote: at the end of the step (`step_done`), or between
/// groups, where a yes abandons the step.
using AskedToStop = std::function<bool(bool step_done)>;

/// Receives the log-probabilities of a micro-batch's labels; they are valid during the call.
using ObserveLogprobs = std::function<void(const Logprobs& logprobs)>;

/// Bytes that an executor holds: what MemoryPlan predicts under the same names.
struct ExecutorMemory {
  std::int64_t activations = 0;  ///< of the micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations, and of a layer that is recomputed
};

struct ExecutorOptions {
  bool recompute = false;       ///< keep only the layers' inputs and run forward again before backward
  bool offload_inputs = false;  ///< with recompute: keep them in host memory
  double lora_dropout = 0.0;
  double noise_alpha = 0.0;  ///< NEFTune's, in training steps; a reference sees no noise
  std::uint64_t seed = 0;
  std::string memory_advice;  ///< settings to change if memory runs out
  bool debug_sync = false;    ///< fail, from the second training step on, where the host waits for its device
  bool graphs = false;        ///< training steps run layers as graphs; needs no lora_dropout, and Strategy::stays_put()
};

class AcquiredUnits;
class InFlight;
class MicroInFlight;

class Executor {
 public:
  /// All references must outlive the executor. `comm`: the ranks over which gradients add up.
  Executor(model::Transformer& transformer, WeightStore& store, comm::Communicator& comm, const ExecutorOptions& options);
  ~Executor();

  /// A whole training step without the optimizer: gradients end up reduced in the store. The ranks that are asked to stop are
  /// counted in the all-reduce that ends the step, and where the list has a vote; a step that is abandoned at a vote leaves
  /// nothing behind. Collective.
  ///
  /// `loss_scale` multiplies the gradients, also in the store, but not what is returned. With `range`, the place of `micros` in
  /// the global batch, loss and metrics are summed in the order of the micro-batches too.
  StepResult train(const ActionList& list, std::span<const model::MicroInput> micros, const Objective& objective,
                   std::uint64_t step, const AskedToStop& asked_to_stop = {}, double loss_scale = 1.0,
                   const MicroRange& range = {});
  /// Forward passes up to the head: of each micro-batch the labels' rows as the head reads them, [L, hidden]. As evaluate().
  std::vector<at::Tensor> head_rows(const ActionList& list, std::span<const model::MicroInput> micros);
  /// Forward passes; `observe` is called for one micro-batch after the other. `objective`: whose row_values() it gets; nullptr:
  /// none. Not collective by itself (the store may be).
  void evaluate(const ActionList& list, std::span<const model::MicroInput> micros, const ObserveLogprobs& observe,
                const Objective* objective = nullptr);

  /// Runs a part of a training step, named `what`. With debug_sync, from the second step on, throws Error where that waits
  /// for the device.
  void without_waits(const std::function<std::string()>& what, const std::function<void()>& part) const;

  PhaseTimes take_times();
  ExecutorMemory memory() const;
  /// How layers ran; nullptr without graphs.
  const LayerGraphs* graphs() const { return graphs_.get(); }

 private:
  struct Pass;

  void interpret(const ActionList& list, Pass& pass);
  void perform(const Action& action, Pass& pass);
  void acquire(const Action& action);
  void need_experts(int unit, std::span<const std::int64_t> begins);
  void forward(const Action& action, Pass& pass);
  void backward(const Action& action, Pass& pass);
  void reduce(int unit);
  void vote(Pass& pass);
  void step(Pass& pass);

  MicroInFlight& open(const Action& action, const Pass& pass);
  void forward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void backward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void forward_head(const Action& action, MicroInFlight& micro, Pass& pass);
  void forward_reference_head(const Action& action, const MicroInFlight& micro, Pass& pass);
  void backward_head(const Action& action, MicroInFlight& micro, const Pass& pass);
  void run(const LayerCall& call, const MicroInFlight& micro, const Pass& pass);
  std::string memory_held() const;

  model::Transformer& transformer_;
  WeightStore& store_;
  comm::Communicator& comm_;
  ExecutorOptions options_;
  std::unique_ptr<AcquiredUnits> units_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<LayerGraphs> graphs_;
  PhaseTimes times_;
  bool warm_ = false;  ///< a training step has made what is made once
};

}  // namespace qft::parallel

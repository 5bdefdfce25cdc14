// The interpreter of action lists: the one place where blocks run, activations live and collectives are issued.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "qft/comm/communicator.h"
#include "qft/model/transformer.h"
#include "qft/parallel/action.h"
#include "qft/parallel/layer_graphs.h"
#include "qft/parallel/objective.h"
#include "qft/parallel/step_result.h"
#include "qft/parallel/weight_store.h"

namespace qft::parallel {

/// Seconds of the host thread per kind of work, summed over run() calls.
struct PhaseTimes {
  double forward = 0, backward = 0, gather = 0, reduce = 0;
};

/// Whether this rank is asked to stop; called where the ranks vote, as late as that allows: at the end of the step (`step_done`),
/// or where that would be abandoned.
using AskedToStop = std::function<bool(bool step_done)>;

/// Takes the log-probabilities [L] of a micro-batch's labels, which are valid during the call.
using ObserveLogprobs = std::function<void(const at::Tensor& logprobs)>;

/// Bytes that an executor holds: what MemoryPlan predicts under the same names.
struct ExecutorMemory {
  std::int64_t activations = 0;  ///< of the micro-batches in flight
  std::int64_t buffers = 0;      ///< scratch of the operations, and of a layer that is computed again
};

struct ExecutorOptions {
  bool recompute = false;         ///< keep only the layers' inputs, run forward again before backward
  bool offload_inputs = false;    ///< with recompute: in host memory
  double lora_dropout = 0.0;
  std::uint64_t seed = 0;
  std::string memory_advice;      ///< settings to change where memory runs out
  bool debug_sync = false;        ///< from the second training step on an error where the host waits for its device
  bool graphs = false;            ///< training steps run layers as graphs: no lora_dropout, and weights and gradients that stay where they are
};

class HeldUnits;
class InFlight;
class MicroInFlight;

class Executor {
 public:
  /// All references must outlive the executor. `comm`: the ranks over which gradients add up.
  Executor(model::Transformer& transformer, WeightStore& store, comm::Communicator& comm, const ExecutorOptions& options);
  ~Executor();

  /// A whole training step but the optimizer: gradients end up reduced in the store. Who is asked to stop is counted over
  /// the ranks in the all-reduce that ends the step, and where the list votes before: a step that is abandoned there leaves
  /// nothing behind. Collective.
  /// `loss_scale` multiplies the gradients on their way and in the store; not what is returned. With
  /// `range`, the place of `micros` in the global batch, loss and metrics too are added up in the order of the micro-batches.
  StepResult train(const ActionList& list, std::span<const model::MicroInput> micros, const Objective& objective,
                   std::uint64_t step, const AskedToStop& asked_to_stop = {}, double loss_scale = 1.0, const MicroRange& range = {});
  /// Forward passes; `observe` is called for one micro-batch after the other. Not collective by itself (the store may be).
  void evaluate(const ActionList& list, std::span<const model::MicroInput> micros, const ObserveLogprobs& observe);

  /// Runs a part of a training step, named `what`. With debug_sync, after the first step, throws Error where it waits for
  /// the device.
  void without_waits(const std::function<std::string()>& what, const std::function<void()>& part) const;

  PhaseTimes take_times();
  ExecutorMemory memory() const;
  /// How layers ran; nullptr without graphs.
  const LayerGraphs* graphs() const { return graphs_.get(); }

 private:
  struct Pass;

  void interpret(const ActionList& list, Pass& pass);
  void perform(const Action& action, Pass& pass);
  void acquire(int unit);
  void forward(const Action& action, Pass& pass);
  void backward(const Action& action, Pass& pass);
  void reduce(int unit);
  void vote(Pass& pass);
  void step(Pass& pass);

  MicroInFlight& open(const Action& action, const Pass& pass);
  void forward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void backward_layer(const Action& action, MicroInFlight& micro, const Pass& pass);
  void forward_head(const Action& action, MicroInFlight& micro, Pass& pass);
  void backward_head(const Action& action, MicroInFlight& micro, const Pass& pass);
  void run(const LayerCall& call, const MicroInFlight& micro, const Pass& pass);
  std::string memory_held() const;

  model::Transformer& transformer_;
  WeightStore& store_;
  comm::Communicator& comm_;
  ExecutorOptions options_;
  std::unique_ptr<HeldUnits> units_;
  std::unique_ptr<InFlight> in_flight_;
  std::unique_ptr<LayerGraphs> graphs_;
  PhaseTimes times_;
  bool warm_ = false;  ///< a training step has made what is made once
};

}  // namespace qft::parallel

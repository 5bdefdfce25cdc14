// A model on this rank: specification, weight store, blocks, executor and, for training, the optimizer. run_plan.h resolves
// a run file to a plan, instance.cpp builds the model from it.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/engine/run_plan.h"
#include "qft/loader/loader.h"
#include "qft/model/load.h"
#include "qft/model/transformer.h"
#include "qft/optim/optimizer.h"
#include "qft/optim/precision.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/layout.h"
#include "qft/parallel/weight_store.h"
#include "qft/plan/run_plan.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

namespace qft::engine {

/// Cost of loading.
struct LoadReport {
  double seconds = 0.0;
  std::int64_t bytes_read = 0;  ///< bytes of the model's files that this rank read
};

/// See the top of this file.
class Instance {
 public:
  /// Loads the model's weights and, with an adapter, reads or initialises it. `run` and `source`: from resolve_run(), for the
  /// same ranks. `resumed`: the checkpoint that training resumes from, or empty. It holds the initial PiSSA factors; without a
  /// checkpoint they are computed here. Collective over `comm`, which must outlive the instance. Throws Error.
  static std::unique_ptr<Instance> load(plan::RunPlan run, const ModelSource& source, comm::Communicator& comm,
                                        c10::Device device, const std::filesystem::path& resumed = {});

  /// Builds an instance with unset weights. The caller writes them through param() and then calls publish(). Collective over
  /// `comm`, which must outlive the instance.
  static std::unique_ptr<Instance> build(plan::RunPlan run, comm::Communicator& comm, c10::Device device);

  const plan::RunPlan& plan() const { return run_; }
  /// The plan's spec on this rank: ParamSpec::first_holder is known.
  const model::ModelSpec& spec() const { return spec_; }
  const optim::Precision& precision() const { return run_.precision; }
  model::Transformer& transformer() { return *transformer_; }
  parallel::WeightReader& weights() { return *store_; }
  const parallel::Layout& layout() const { return layout_; }
  const parallel::Groups& groups() const { return layout_.groups(); }
  parallel::Executor& executor() { return *executor_; }
  /// nullptr for inference.
  optim::Optimizer* optimizer() { return optimizer_.get(); }
  const LoadReport& load_report() const { return report_; }
  /// The initial PiSSA factors (model/pissa.h), on rank 0; else nullptr.
  const std::shared_ptr<const io::TensorFile>& initial_factors() const { return initial_factors_; }

  /// The micro-batch as tensors on the instance's device.
  model::MicroInput input(const loader::MicroBatch& batch) const;

  /// The largest number of micro-batches per acquire of a block.
  std::int64_t group() const { return run_.schedule.group; }
  /// Returns the action list of a training step. `micro_batches`: this rank's count; `max_micro_batches`: the largest count of
  /// any rank; `seconds`: the expected duration of the step, equal on every rank (0: ranks vote only at the end of the step).
  parallel::ActionList training_list(int micro_batches, int max_micro_batches, double seconds = 0.0) const;
  /// Returns the action list of a forward pass. Micro-batches per acquire: group() if the instance trains, else all.
  parallel::ActionList evaluation_list(int micro_batches, int max_micro_batches) const;
  /// Runs one optimizer update with gradients multiplied by `grad_scale`. Collective.
  void update(double learning_rate, double grad_scale);

  /// Returns this rank's part of the most precise copy of a parameter's boxes: the optimizer's master if there is one, else the
  /// weights. Call settle() before reading or writing through it, and publish() after writing. All ranks of groups().copies()
  /// hold the same values.
  model::Shard param(int unit, const model::ParamSpec& param) const;
  /// Returns this rank's part of the optimizer state of a trainable parameter, in the order of RuleSpec::states().
  std::vector<optim::HeldState> states(int unit, const model::ParamSpec& param) const;
  /// Returns this rank's part of the reduced gradient of a trainable parameter's boxes: after a step, before update(). All ranks
  /// of groups().copies() hold the same values.
  model::Shard grad(int unit, const model::ParamSpec& param) const;
  /// Waits, in stream order, for transfers of weights in flight: later reads and writes come after them. Not collective.
  void settle();
  /// Copies changed masters to the weights on all ranks. Collective.
  void publish();
  /// Allocates a buffer that fits whole_master() of any unit; undefined if each rank has whole masters. Not collective.
  at::Tensor master_buffer() const;
  /// Returns a unit's trainable parameters [trainable_numel] from the optimizer's masters: all boxes of this tensor rank on every
  /// rank (parallel::WholeTensors puts the boxes of several tensor ranks together). The result lies in `room` until the next use
  /// of `room`, or in new memory if `room` is undefined. Collective.
  at::Tensor whole_master(int unit, const at::Tensor& room) const;

 private:
  /// Sets DoRA's magnitudes to the norms of the base weights' rows. Collective.
  void init_magnitudes();
  parallel::ActionList with_prefetches(const parallel::ActionList& list) const;
  Instance(plan::RunPlan run, comm::Communicator& comm, c10::Device device);

  plan::RunPlan run_;
  model::ModelSpec spec_;
  parallel::Layout layout_;
  std::unique_ptr<model::Transformer> transformer_;
  std::unique_ptr<parallel::WeightStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::Executor> executor_;
  std::vector<int> optimizer_index_;  ///< per unit: index of its optimizer buffer; -1: none
  std::shared_ptr<const io::TensorFile> initial_factors_;
  LoadReport report_;
};

/// Logs the line "strategy   zero3: 4 ranks = 2 shards x 2 parts of each matrix (tensor_parallel); ...". Rank 0 only.
void log_layout(const config::RunConfig& config, const Instance& instance);

}  // namespace qft::engine

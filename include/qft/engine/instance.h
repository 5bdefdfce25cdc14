// A model on this rank: specification, weight store, blocks, executor and, for training, the optimizer. recipe.h derives the
// settings from a run file, instance.cpp builds the model from them.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/recipe.h"
#include "qft/loader/loader.h"
#include "qft/model/load.h"
#include "qft/model/transformer.h"
#include "qft/optim/optimizer.h"
#include "qft/optim/precision.h"
#include "qft/parallel/executor.h"
#include "qft/parallel/layout.h"
#include "qft/parallel/weight_store.h"
#include "qft/plan/memory_plan.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace qft::engine {

/// Cost of loading.
struct LoadReport {
  double seconds = 0.0;
  std::int64_t bytes_read = 0;  ///< bytes of the model's files that this rank read
};

/// Predicted peak memory of a rank, in bytes: device memory, on the CPU host memory.
struct MemoryPrediction {
  plan::MemoryPlan plan;
  std::int64_t before = 0;     ///< process memory before the model is loaded
  std::int64_t kernels = 0;    ///< compiled kernels that LibTorch keeps (CPU)
  std::int64_t staged = 0;     ///< host copies for checkpoints; CPU only, because a device's allocator does not count them
  std::int64_t available = 0;  ///< free memory at that time, on the rank with the least
  std::string reason;          ///< why this strategy, if qft chose it
  std::int64_t total() const { return before + kernels + staged + plan.total(); }
};

/// What load() would build from a run file. Computing it allocates no weights.
struct InstancePreview {
  model::ModelSpec spec;
  optim::Precision precision;
  MemoryPrediction memory;
  std::string layout;  ///< strategy and offloaded parts, such as "zero3"
};

/// Everything that build() needs to know.
struct InstanceOptions {
  model::ModelSpec spec;
  optim::Precision precision;
  parallel::Strategy strategy = parallel::strategy_of("ddp");
  std::int64_t hsdp_group_size = 0;  ///< hsdp_group_size of the run file
  parallel::Offload offload = {};
  std::int64_t group = 1;            ///< micro-batches per acquire of a block
  std::int64_t prefetch_budget = 0;  ///< bytes of weights gathered ahead
  std::int64_t head_rows = 0;        ///< rows of logits held at a time; 0: ops::head_chunk_rows()
  bool reference = false;            ///< action lists have a reference lane
  parallel::ReductionOrder reduction_order = parallel::ReductionOrder::as_ready;
  std::int64_t bucket_bytes = parallel::kBucketBytes;
  const optim::RuleSpec* rule = &optim::rule_of("adamw");
  optim::Hyper hyper = {};
  parallel::ExecutorOptions executor = {};
};

/// See the top of this file.
class Instance {
 public:
  /// Reads the model directory and, with LoRA, reads or initialises the adapter. Collective over `comm`, which must outlive the
  /// instance. `batches`: the largest batches that the loader will produce; if unknown, memory is planned for full rows.
  /// `resumed`: the checkpoint that training resumes from, or empty. It holds the initial PiSSA factors; without a checkpoint
  /// they are computed here. Throws Error or ConfigError if something does not fit.
  static std::unique_ptr<Instance> load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                        const plan::Batches& batches = {}, const std::filesystem::path& resumed = {});

  /// Builds an instance with unset weights. The caller writes them through param() and then calls publish(). Collective over
  /// `comm`, which must outlive the instance.
  static std::unique_ptr<Instance> build(InstanceOptions options, comm::Communicator& comm, c10::Device device, Use use);

  /// Makes all checks that load() makes before it allocates: the headers of the model's and the adapter's files, the element
  /// types, and whether a strategy fits into memory. Collective; throws as load() does.
  static InstancePreview preview(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                 const plan::Batches& batches = {});

  const model::ModelSpec& spec() const { return options_.spec; }
  const optim::Precision& precision() const { return options_.precision; }
  /// For inference: the key or file that decided precision().
  const std::string& precision_reason() const { return precision_reason_; }
  model::Transformer& transformer() { return *transformer_; }
  parallel::WeightReader& weights() { return *store_; }
  const parallel::Layout& layout() const { return *layout_; }
  parallel::Executor& executor() { return *executor_; }
  /// nullptr for inference.
  optim::Optimizer* optimizer() { return optimizer_.get(); }
  const LoadReport& load_report() const { return report_; }
  const MemoryPrediction& memory() const { return memory_; }
  /// The initial PiSSA factors (model/pissa.h), on rank 0; else nullptr.
  const std::shared_ptr<const io::TensorFile>& initial_factors() const { return initial_factors_; }

  /// The micro-batch as tensors on the instance's device.
  model::MicroInput input(const loader::MicroBatch& batch) const;

  /// The largest number of micro-batches per acquire of a block.
  std::int64_t group() const { return options_.group; }
  /// True if backward recomputes activations.
  bool recompute() const { return options_.executor.recompute; }
  /// Returns the action list of a training step. `micro_batches`: this rank's count; `max_micro_batches`: the largest count of
  /// any rank; `seconds`: the expected duration of the step, equal on every rank (0: ranks vote only at the end of the step).
  parallel::ActionList training_list(int micro_batches, int max_micro_batches, double seconds = 0.0) const;
  /// Returns the action list of a forward pass. Micro-batches per acquire: group() if the instance trains, else all.
  parallel::ActionList evaluation_list(int micro_batches, int max_micro_batches) const;
  /// Runs one optimizer update with gradients multiplied by `grad_scale`. Collective.
  void update(double learning_rate, double grad_scale);

  /// Returns this rank's part of the most precise copy of a parameter's box: the optimizer's master if there is one, else the
  /// weights. Call settle() before reading or writing through it, and publish() after writing. All ranks of layout().replicate()
  /// hold the same values.
  model::Shard param(int unit, const model::ParamSpec& param) const;
  /// Returns this rank's part of the optimizer state of a trainable parameter, in the order of RuleSpec::states().
  std::vector<optim::HeldState> states(int unit, const model::ParamSpec& param) const;
  /// Returns the reduced gradients of a trainable unit after a step: this rank's shard, or [trainable_numel] if not sharded.
  at::Tensor grads(int unit) const { return store_->grads(unit); }
  /// Waits, in stream order, for transfers of weights in flight: later reads and writes come after them. Not collective.
  void settle();
  /// Copies changed masters to the weights on all ranks. Collective.
  void publish();
  /// Allocates a buffer that fits whole_master() of any unit; undefined if each rank has whole masters. Not collective.
  at::Tensor master_buffer() const;
  /// Returns a unit's trainable parameters [trainable_numel] from the optimizer's masters, complete on every rank. The result
  /// lies in `room` until the next use of `room`, or in new memory if `room` is undefined. Collective.
  at::Tensor whole_master(int unit, const at::Tensor& room) const;

 private:
  /// Sets DoRA's magnitudes to the norms of the base weights' rows. Collective.
  void init_magnitudes();
  explicit Instance(InstanceOptions options) : options_(std::move(options)) {}

  InstanceOptions options_;
  std::string precision_reason_;
  std::unique_ptr<model::Transformer> transformer_;
  std::unique_ptr<parallel::Layout> layout_;
  std::unique_ptr<parallel::WeightStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::Executor> executor_;
  std::vector<int> optimizer_index_;  ///< per unit: index of its optimizer buffer; -1: none
  std::shared_ptr<const io::TensorFile> initial_factors_;
  LoadReport report_;
  MemoryPrediction memory_;
};

}  // namespace qft::engine

// A model as this rank holds it: specification, weights in their store, blocks, executor and, for training, the
// optimizer. What a configuration asks for is in recipe.h, how it becomes this in instance.cpp.
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

struct LoadReport {
  double seconds = 0.0;
  std::int64_t bytes_read = 0;  ///< of the model's files, by this rank
};

/// What a rank was predicted to need of its device's memory (of the host's on the CPU), in bytes.
struct MemoryPrediction {
  plan::MemoryPlan plan;
  std::int64_t before = 0;     ///< what the process used before it held any of the model
  std::int64_t kernels = 0;    ///< compiled kernels that LibTorch will keep (CPU)
  std::int64_t staged = 0;     ///< copies for checkpoints, on the CPU: a device's allocator does not count them
  std::int64_t available = 0;  ///< what it could take then, on the rank that had least
  std::string reason;          ///< why this strategy, where it was to be chosen
  std::int64_t total() const { return before + kernels + staged + plan.total(); }
};

/// What load() would make of a configuration; nothing is allocated to find out.
struct InstancePreview {
  model::ModelSpec spec;
  optim::Precision precision;
  MemoryPrediction memory;
  std::string layout;  ///< "zero3", with what is offloaded
};

/// What an instance is built from: all that follows from a configuration and the machine.
struct InstanceOptions {
  model::ModelSpec spec;
  optim::Precision precision;
  parallel::Strategy strategy = parallel::strategy_of("ddp");
  std::int64_t hsdp_group_size = 0;  ///< as in the configuration
  parallel::Offload offload = {};
  std::int64_t group = 1;            ///< micro-batches that pass a block under one acquire
  std::int64_t prefetch_budget = 0;  ///< bytes of weights gathered ahead
  std::int64_t head_rows = 0;        ///< rows of logits held at a time; 0: ops::head_chunk_rows()
  bool reference = false;            ///< lists have a reference lane
  parallel::ReductionOrder reduction_order = parallel::ReductionOrder::as_ready;
  std::int64_t bucket_bytes = parallel::kBucketBytes;
  const optim::RuleSpec* rule = &optim::rule_of("adamw");
  optim::Hyper hyper = {};
  parallel::ExecutorOptions executor = {};
};

class Instance {
 public:
  /// Reads the model directory and, with LoRA, the adapter (or initialises one). Collective over `comm`, which must
  /// outlive the instance. `batches`: the largest that the loader will deal; where unknown, memory is planned for full rows.
  /// `resumed`: the checkpoint that training goes on from, or empty: it has the factors with which PiSSA began. Else they are
  /// found here. Throws Error / ConfigError for anything that does not fit.
  static std::unique_ptr<Instance> load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                        const plan::Batches& batches = {}, const std::filesystem::path& resumed = {});

  /// An instance with unset weights, as load() makes before it reads them: write them through param(), then publish(). Collective
  /// over `comm`, which must outlive the instance.
  static std::unique_ptr<Instance> build(InstanceOptions options, comm::Communicator& comm, c10::Device device, Use use);

  /// All that load() checks before it allocates: the model's and the adapter's files as their headers show them, the element
  /// types, and that a strategy fits into memory. Collective; throws as load() does.
  static InstancePreview preview(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, Use use,
                                 const plan::Batches& batches = {});

  const model::ModelSpec& spec() const { return options_.spec; }
  const optim::Precision& precision() const { return options_.precision; }
  /// What it follows from, for inference.
  const std::string& precision_reason() const { return precision_reason_; }
  model::Transformer& transformer() { return *transformer_; }
  parallel::WeightReader& weights() { return *store_; }
  const parallel::Layout& layout() const { return *layout_; }
  parallel::Executor& executor() { return *executor_; }
  /// nullptr for inference.
  optim::Optimizer* optimizer() { return optimizer_.get(); }
  const LoadReport& load_report() const { return report_; }
  const MemoryPrediction& memory() const { return memory_; }
  /// The factors with which PiSSA began (model/pissa.h), on rank 0; else nullptr.
  const std::shared_ptr<const io::TensorFile>& initial_factors() const { return initial_factors_; }

  /// The micro-batch as tensors on the instance's device.
  model::MicroInput input(const loader::MicroBatch& batch) const;

  /// Micro-batches that pass a block under one acquire, at most.
  std::int64_t group() const { return options_.group; }
  /// True where activations are computed again in backward.
  bool recompute() const { return options_.executor.recompute; }
  /// The action list of a training step. `micro_batches`: of this rank; `max_micro_batches`: of the rank that has most;
  /// `seconds`: how long the step is expected to take, alike on every rank (0: no vote but the one at its end).
  parallel::ActionList training_list(int micro_batches, int max_micro_batches, double seconds = 0.0) const;
  /// Of a forward pass over as many micro-batches: in training as many pass a block under one acquire as there, else all.
  parallel::ActionList evaluation_list(int micro_batches, int max_micro_batches) const;
  /// One update of the optimizer with gradients multiplied by `grad_scale`. Collective.
  void update(double learning_rate, double grad_scale);

  /// What this rank holds of the most precise copy of a parameter's box: the optimizer's master where there is one, else the
  /// weights. Before reading or writing through it call settle(), after writing publish(). All ranks of layout().replicate() hold
  /// the same.
  model::Shard param(int unit, const model::ParamSpec& param) const;
  /// The same of what the optimizer's rule keeps of a trainable parameter, in the order of RuleSpec::states().
  std::vector<optim::HeldState> states(int unit, const model::ParamSpec& param) const;
  /// The reduced gradients of a trainable unit after a step, as this rank holds them: [trainable_numel] where they are whole.
  at::Tensor grads(int unit) const { return store_->grads(unit); }
  /// What is read or written from now on is ordered behind transfers of the weights that are in flight. Not collective.
  void settle();
  /// Masters have changed: brings them to the weights, on all ranks. Collective.
  void publish();
  /// Memory for whole_master() of any unit; undefined where masters are whole on this rank. Not collective.
  at::Tensor master_room() const;
  /// A unit's trainable parameters [trainable_numel] as the optimizer's masters have them, whole on every rank: in `room`,
  /// until its next use, or in memory of its own where that is undefined. Collective.
  at::Tensor whole_master(int unit, const at::Tensor& room) const;

 private:
  /// DoRA's magnitudes begin as the norms of the base weights' rows. Collective.
  void init_magnitudes();
  explicit Instance(InstanceOptions options) : options_(std::move(options)) {}

  InstanceOptions options_;
  std::string precision_reason_;
  std::unique_ptr<model::Transformer> transformer_;
  std::unique_ptr<parallel::Layout> layout_;
  std::unique_ptr<parallel::WeightStore> store_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::Executor> executor_;
  std::vector<int> optimizer_index_;  ///< per unit: which buffer of the optimizer, -1 for none
  std::shared_ptr<const io::TensorFile> initial_factors_;
  LoadReport report_;
  MemoryPrediction memory_;
};

}  // namespace qft::engine

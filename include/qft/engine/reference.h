// The reference that an objective compares the policy with: the policy without its adapter, a separate model, or stored
// log-probabilities.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/column_source.h"
#include "qft/engine/instance.h"
#include "qft/loader/loader.h"
#include "qft/model/adapter_config.h"

#include <cstdint>
#include <memory>
#include <span>

namespace qft::engine {

/// The source of the reference's log-probabilities.
enum class ReferenceKind : std::uint8_t {
  none,
  lane,   ///< the model without its adapter: a lane of the action lists
  model,  ///< a second set of frozen weights: ref_model, else the starting model, if its own weights train
  file    ///< log-probabilities computed before the first step: stored_reference.h
};

/// Returns the kind of reference of a policy with `adapter`. Throws ConfigError if the objective needs a reference and there is
/// none.
ReferenceKind reference_of(const config::RunConfig& config, const model::AdapterConfig& adapter, Use use);
/// True if the reference is a lane of the policy's action lists. Never throws.
bool has_reference_lane(const config::RunConfig& config, const model::AdapterConfig& adapter, Use use);
/// True if the reference is a model with its own weights, or log-probabilities that such a model computes before the first step.
bool has_separate_reference(const config::RunConfig& config, const model::AdapterConfig& adapter, Use use);

/// Returns the run that loads the reference for inference: the named reference, else the model without the trained adapter.
config::RunConfig reference_config(const config::RunConfig& config, Use use);

/// The references of training and evaluation items. Null: no reference, or a lane.
struct References {
  std::shared_ptr<ColumnSource> training, evaluation;
};

/// A reference with its own frozen weights, in the run's type and without gradients. All micro-batches of a call share one
/// acquire per block. Fills columns::kReference; if the objective reads columns::kReferenceRows, fills those, the
/// head stays gathered beside the policy's, and rows are kept for each label of a step.
class ReferenceModel final : public ColumnSource {
 public:
  /// Loads the reference of a policy that uses `policy`. Collective; `comm` must outlive the model. `sharding`: the policy's,
  /// which the reference copies; null: the run file's. Throws ConfigError if its vocabulary differs from the policy's.
  static std::unique_ptr<ReferenceModel> load(const config::RunConfig& config, const ModelSource& policy,
                                              comm::Communicator& comm, c10::Device device,
                                              const parallel::Sharding* sharding = nullptr, const plan::Batches& batches = {});

  /// Copies the micro-batch to tensors on the reference's device.
  model::MicroInput input(const loader::MicroBatch& batch) const { return instance_->input(batch); }
  void fill(const SourceBatch& batch, std::span<model::MicroInput> micros) override;
  std::int64_t bytes() const override;
  const parallel::Groups& groups() const { return instance_->groups(); }

 private:
  explicit ReferenceModel(std::unique_ptr<Instance> instance) : instance_(std::move(instance)) {}
  void hold_head();
  std::unique_ptr<Instance> instance_;
  at::Tensor head_;  ///< [V, hidden]; set if the objective reads rows
};

/// Loads a ReferenceModel beside `policy`, which was loaded from `source`, if reference_of() returns `model`; else returns null.
/// Collective.
std::unique_ptr<ReferenceModel> load_reference_beside(const config::RunConfig& config, const ModelSource& source,
                                                      const Instance& policy, comm::Communicator& comm, c10::Device device);

}  // namespace qft::engine

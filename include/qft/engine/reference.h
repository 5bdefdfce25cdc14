// What an objective compares the policy with: the policy without its adapter, a model of its own, or what one of these said.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/loader/loader.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace qft::engine {

enum class ReferenceKind : std::uint8_t {
  none,
  lane,   ///< the model without its adapter: a lane of the action lists
  model,  ///< a second set of frozen weights: ref_model, else the model that training starts from, where weights of it train
  file    ///< of one of these, computed before the first step: stored_reference.h
};

/// Whether the reference is a lane of the lists of a model of `spec`, which is trained or not.
bool has_reference_lane(const config::RunConfig& config, const model::ModelSpec& spec, Use use);

/// Throws ConfigError where the objective needs a reference and nothing can be one.
ReferenceKind reference_of(const config::RunConfig& config, const model::ModelSpec& spec, Use use);

/// The run that loads the reference for inference: what is named, else the model without the adapter that is trained.
config::RunConfig reference_config(const config::RunConfig& config, Use use);

/// Of ReferenceKind::model what it holds, as `spec` is computed beside it.
std::optional<model::ModelSpec> reference_spec(const config::RunConfig& config, const model::ModelSpec& spec, Use use);

/// What has the reference's log-probabilities of micro-batches.
class Reference {
 public:
  virtual ~Reference() = default;
  /// Sets MicroInput::reference of each, or its reference_rows and reference_head where the objective reads rows; each was made
  /// of the batch in its place. `rounds`: micro-batches of the rank that has most. Collective.
  virtual void score(std::span<const loader::MicroBatch> batches, std::span<model::MicroInput> micros, std::int64_t rounds) = 0;
  /// Bytes that this rank holds for it where it computes, at their peak.
  virtual std::int64_t bytes() const { return 0; }
};

/// Of the items that are trained, and of those of evaluations. Null: the run has none, or a lane.
struct References {
  std::shared_ptr<Reference> training, evaluation;
};

/// A reference with weights of its own, in the run's type. It holds no gradients. All micro-batches of a call pass a block under
/// one acquire. For an objective that reads rows its head stays gathered beside the policy's, and each label of a step has a row.
class ReferenceModel final : public Reference {
 public:
  /// Collective; `comm` must outlive the model. `layout`: that of the policy, which it takes on; null: as the configuration
  /// says. Throws ConfigError where it has another vocabulary than the policy.
  static std::unique_ptr<ReferenceModel> load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                                              Use use, const parallel::Layout* layout = nullptr,
                                              const plan::Batches& batches = {});

  /// The micro-batch as tensors on its device.
  model::MicroInput input(const loader::MicroBatch& batch) const { return instance_->input(batch); }
  void score(std::span<const loader::MicroBatch> batches, std::span<model::MicroInput> micros, std::int64_t rounds) override;
  std::int64_t bytes() const override;

 private:
  explicit ReferenceModel(std::unique_ptr<Instance> instance) : instance_(std::move(instance)) {}
  void hold_head();
  std::unique_ptr<Instance> instance_;
  at::Tensor head_;  ///< [V, hidden], of an objective that reads rows
};

/// A ReferenceModel where reference_of() says model, beside `policy`; else null. Collective.
std::unique_ptr<ReferenceModel> load_beside(const config::RunConfig& config, const Instance& policy, comm::Communicator& comm,
                                            c10::Device device, Use use);

}  // namespace qft::engine

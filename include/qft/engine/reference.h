// What an objective compares the policy with: the policy without its adapter, or a model of its own.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <memory>
#include <span>

namespace qft::engine {

enum class ReferenceKind : std::uint8_t {
  none,
  lane,  ///< the model without its adapter: a lane of the action lists
  model  ///< a second set of frozen weights: ref_model, else the model that full training starts from
};

/// Whether the reference is a lane of the lists of a model of `spec`.
bool has_reference_lane(const config::RunConfig& config, const model::ModelSpec& spec);

/// Throws ConfigError where the objective needs a reference and nothing can be one.
ReferenceKind reference_of(const config::RunConfig& config, const model::ModelSpec& spec, Use use);

/// A reference with weights of its own, in the run's strategy and type. It holds no gradients.
class ReferenceModel {
 public:
  /// Null where the run needs none. Collective; `comm` must outlive the model. Throws ConfigError where it has another vocabulary
  /// than the policy.
  static std::unique_ptr<ReferenceModel> load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                                              Use use);

  /// Sets MicroInput::reference of each; all pass a block under one acquire. `rounds`: micro-batches of the rank that has most.
  /// Collective.
  void score(std::span<model::MicroInput> micros, std::int64_t rounds);

 private:
  explicit ReferenceModel(std::unique_ptr<Instance> instance) : instance_(std::move(instance)) {}
  std::unique_ptr<Instance> instance_;
};

}  // namespace qft::engine

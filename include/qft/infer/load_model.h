// Loads and describes the model for a program without training, and warns about unused training results.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"

#include <filesystem>
#include <memory>
#include <string>

namespace qft::infer {

/// Returns the training result in output_dir (the folder itself or its newest checkpoint) if neither adapter_name_or_path nor
/// model_name_or_path names it. Empty if there is none, or if adapter_name_or_path is given (null: the base model is meant).
std::filesystem::path unused_result(const config::RunConfig& config);
/// Returns true if the result `dir` is an adapter rather than a whole model.
bool holds_adapter(const std::filesystem::path& dir);
/// Returns the setting that makes a program use the result `dir`: "adapter_name_or_path=out" (or model_name_or_path).
std::string setting_for(const std::filesystem::path& dir);

/// Loads the model of `source` for inference. Rank 0 logs model, adapter, element type and the layout of several ranks, and warns
/// about an unused_result(). Collective.
std::unique_ptr<engine::Instance> load_for_inference(const config::RunConfig& config, const engine::ModelSource& source,
                                                     comm::Communicator& comm, c10::Device device);
/// The same for a model that nothing else has read yet. Collective.
std::unique_ptr<engine::Instance> load_for_inference(const config::RunConfig& config, comm::Communicator& comm,
                                                     c10::Device device);

/// Returns the compute type, such as "bfloat16".
std::string compute_type_name(const engine::Instance& instance);

}  // namespace qft::infer

// The model that a program without training was asked for: loaded, said, and compared with what training left.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"

#include <filesystem>
#include <memory>
#include <string>

namespace qft::infer {

/// What training left in output_dir (the folder itself, or its newest checkpoint) where neither adapter_name_or_path nor
/// model_name_or_path names it; empty where there is none, or where adapter_name_or_path is given (null: the base is meant).
std::filesystem::path unused_result(const config::RunConfig& config);
/// Whether the result `dir` is an adapter, not a whole model.
bool holds_adapter(const std::filesystem::path& dir);
/// "adapter_name_or_path=out" (or model_name_or_path): what makes a program take the result `dir`.
std::string key_for(const std::filesystem::path& dir);

/// Instance::load() for inference. Rank 0 logs model, adapter and element type, and warns of an unused_result(). Collective.
std::unique_ptr<engine::Instance> load_for_inference(const config::RunConfig& config, comm::Communicator& comm,
                                                     c10::Device device);

/// "bfloat16": what it computes in.
std::string type_of(const engine::Instance& instance);

}  // namespace qft::infer

// The model that a run uses: its folder, its adapters and their configurations, each read once; and its identity, by file
// contents and not by names.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/load.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qft::engine {

/// The purpose of a loaded model. Inference holds no gradients and no optimizer.
enum class Use { training, inference };

/// The adapters in adapter_name_or_path (in the subfolder adapter_folder, if given). As in LLaMA-Factory, all but the last are
/// merged into the base weights; with create_new_adapter in training the last one too.
struct AdapterPaths {
  std::vector<std::filesystem::path> merged;
  std::filesystem::path live;  ///< the adapter that is run or trained; empty: none, or a new one
};
AdapterPaths adapter_paths(const config::RunConfig& config, Use use);

/// An adapter on disk.
struct AdapterSource {
  std::filesystem::path dir;
  model::AdapterConfig config;  ///< its adapter_config.json
};

/// See the top of this file.
class ModelSource {
 public:
  /// Reads config.json and each adapter_config.json. Warns of adapters that were made for another base model. Throws as the
  /// readers of these files do. Not collective.
  static ModelSource read(const config::RunConfig& config, Use use);
  /// Reads the files on every rank; if one rank fails, all throw. So do all if ranks have different keys of the stage.
  /// Collective.
  static ModelSource read(const config::RunConfig& config, Use use, comm::Communicator& comm);

  Use use() const { return use_; }
  bool trains() const { return use_ == Use::training; }
  const std::filesystem::path& dir() const { return dir_; }
  /// config.json as it stands.
  const model::ModelConfig& own_config() const { return own_; }
  /// config.json after rope_scaling: for cutoff_len tokens in training or if that key is given, else for twice the positions that
  /// the model was trained for, as LLaMA-Factory does. Unchanged if the model already has enough positions.
  const model::ModelConfig& config() const { return scaled_; }
  const std::vector<AdapterSource>& merged() const { return merged_; }
  /// The adapter that is run or trained; nullopt: none, or a new one.
  const std::optional<AdapterSource>& live() const { return live_; }
  /// The last adapter, even if training merges it; empty: none.
  std::filesystem::path last_adapter() const;

  /// The source of a training run's reference with its own weights; null: it has none.
  const std::shared_ptr<const ModelSource>& reference() const { return reference_; }

  /// True if the folder has weights beside config.json.
  bool has_weights() const;
  /// Returns the weight files; the first call reads their headers. resolve_run() merges adapters into them.
  io::ModelFiles& files() const;

 private:
  Use use_ = Use::inference;
  std::filesystem::path dir_;
  model::ModelConfig own_, scaled_;
  std::vector<AdapterSource> merged_;
  std::optional<AdapterSource> live_;
  std::shared_ptr<const ModelSource> reference_;
  mutable std::shared_ptr<io::ModelFiles> files_;  ///< null until files()
};

/// Finds the head of a reward model or classifier: beside the last adapter (also a merged one), else beside the model.
model::HeadFile head_file(const ModelSource& source, const model::ModelSpec& spec);

/// Prompt rows shared by both sequences of a pair have one rotary angle each. Throws ConfigError if pairs share prompts but
/// longer sequences would need other angles.
void require_shareable_prompts(const config::RunConfig& config, const model::RopeConfig& rope);

/// Returns a classifier's problem_type: from the run file, else from the model's config.json, else from the number of labels.
std::string problem_of(const config::RunConfig& config, const model::ModelConfig& model, std::int64_t labels);

/// Equal identities give equal outputs.
struct ModelIdentity {
  std::string model;         ///< hash of config.json (after rope_scaling) and of the weights: io::sampled_hash()
  std::string adapter;       ///< hash of the adapters; "none" without adapters
  std::string quantization;  ///< quantisation that the run file asks for; "none" without
};

/// Returns the identity of `source`, read for inference of the run `config`. Reads ten samples of each large file and
/// small files whole. Not collective. Throws Error.
ModelIdentity model_identity_of(const config::RunConfig& config, const ModelSource& source);

}  // namespace qft::engine

// The training state as a checkpoint holds it, written and read by all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/parallel/instance.h"
#include "qft/train/best_model.h"
#include "qft/train/run_log.h"

namespace qft::train {

/// Counters of a run that go on after a resume.
struct Progression {
  std::int64_t step = 0;  ///< optimizer steps done (skipped ones included)
  std::int64_t skipped = 0;
  std::int64_t total_tokens = 0, label_tokens = 0;
  double elapsed_seconds = 0.0;
  double loss_sum = 0.0;  ///< of the steps' losses, for train_loss
  BestModel best;
};

nlohmann::json to_json(const Progression& p);
Progression progression_from_json(const nlohmann::json& json);

/// What one save writes besides tensors.
struct SnapshotInfo {
  Progression progression;
  std::int64_t total_steps = 0;
  double epoch = 0.0;
  double loss = 0.0;
  nlohmann::json data_position;
  nlohmann::json loss_scaler;
  std::int64_t global_batch_size = 0;
};

/// Writes checkpoint-<step>: model or adapter, masters and moments (each rank its share of every tensor), trainer state;
/// commits it and prunes old ones. Collective. `log` is rank 0's, else null. Returns the directory.
std::filesystem::path save_snapshot(const config::RunConfig& config, parallel::Instance& instance, comm::Communicator& comm,
                                    const SnapshotInfo& info, const RunLog* log);

/// The checkpoint to go on from: resume_from_checkpoint as a path or `true` (the newest verified one), or, where
/// output_dir holds checkpoints and is not to be overwritten, the newest verified one. Collective. Throws ConfigError
/// where there is none and one was asked for, or output_dir is in use.
std::optional<std::filesystem::path> find_resume_point(const config::RunConfig& config, comm::Communicator& comm);

/// Restores weights, moments and step count; returns the state the checkpoint carries ("progression", "data", "loss_scaler").
/// Collective.
nlohmann::json load_snapshot(const std::filesystem::path& dir, parallel::Instance& instance, comm::Communicator& comm);

}  // namespace qft::train

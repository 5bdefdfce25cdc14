// Sets up a run: makes all decisions and all checks before the model is loaded.
#pragma once

#include "qft/checkpoint/restore.h"
#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qft::train {

/// The checked inputs of a run.
struct Setup {
  std::optional<checkpoint::SharedCheckpoint> saved;  ///< the checkpoint to resume from
  bool same_settings = false;                         ///< settings equal those of `saved`
  std::optional<engine::ModelSource> source;          ///< always set
  engine::TrainingData data;
  std::unique_ptr<loader::Loader> loader;  ///< at the position of `saved`; null if there is no pack
  plan::Batches batches;                   ///< bounds of the batches that the loader will produce
};

/// Reads the model's configuration, finds the checkpoint to resume from and opens the data. Refuses an output_dir in which a step
/// would replace another program's checkpoint. Changes `config` to the settings that the run began with (adopt()). With
/// MissingPacks::make it makes packs, in an output_dir that the caller holds (OutputDir); with MissingPacks::leave it writes
/// nothing. Calls `accepted` on all ranks once output_dir belongs to this run, before writing there. Collective. Throws if the
/// run is impossible.
Setup set_up(config::RunConfig& config, comm::Communicator& comm, engine::MissingPacks missing,
             const std::function<void()>& accepted = {});

/// True if `step` is a positive multiple of `interval`.
inline bool due(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

/// True if the run saves a checkpoint at this step.
bool saves_at(const config::TrainingArgs& training, const loader::Loader& loader, std::int64_t step);

/// The outcome of check_run().
struct RunPreview {
  std::vector<std::string> lines;     ///< a description of the run for the user
  std::int64_t checkpoint_bytes = 0;  ///< size of one checkpoint on disk
  std::int64_t checkpoints = 0;       ///< the largest number that the run adds, including one being written
  std::int64_t result_bytes = 0;      ///< size of the resulting model or adapter
};

/// Makes all checks that `qft train` makes before its first step, without writing anything or loading the model: set_up(), files
/// and memory (resolve_run()), and the checkpoint's tensors; if nothing is trained, the checks of an evaluation.
/// Collective; throws as training would.
RunPreview check_run(config::RunConfig config, comm::Communicator& comm, c10::Device device);

}  // namespace qft::train

// Setting up a run: all decisions and refusals before the model is loaded.
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

struct Setup {
  std::optional<checkpoint::SharedCheckpoint> saved;  ///< to resume from
  bool same_settings = false;                         ///< as there
  engine::TrainingData data;
  std::unique_ptr<loader::Loader> loader;  ///< at the position of `saved`; null where no pack was made
  plan::Batches batches;                   ///< what the loader will deal
};

/// Reads the model's configuration, finds the checkpoint to resume from, opens the data; refuses another program's directory
/// where a step would be saved. Gives `config` what the run began with (adopt()). With MissingPacks::make it makes the packs, in
/// an output_dir that the caller holds (OutputDir); with MissingPacks::leave it writes nothing. Collective; throws what makes a
/// run impossible. `accepted` is called on all ranks once output_dir is the run's, before anything is written there.
Setup set_up(config::RunConfig& config, comm::Communicator& comm, engine::MissingPacks missing,
             const std::function<void()>& accepted = {});

/// True where `step` is a multiple of the interval; never for 0.
inline bool due(std::int64_t step, std::int64_t interval) {
  return interval > 0 && step % interval == 0;
}

/// Whether the run saves a checkpoint of this step.
bool saves_at(const config::TrainingArgs& training, const loader::Loader& loader, std::int64_t step);

/// What a run would do.
struct RunPreview {
  std::vector<std::string> lines;     ///< what would run, a line each
  std::int64_t checkpoint_bytes = 0;  ///< of one checkpoint on disk
  std::int64_t checkpoints = 0;       ///< that the run adds at most, the one being written included
  std::int64_t result_bytes = 0;      ///< of the model or the adapter that it leaves beside them
};

/// Everything that `qft train` refuses before its first step, found without writing anything or loading the model: set_up(),
/// files and memory (Instance::preview()), and the checkpoint's tensors; without training, what evaluation needs. Collective;
/// throws as training would.
RunPreview check_run(config::RunConfig config, comm::Communicator& comm, c10::Device device);

}  // namespace qft::train

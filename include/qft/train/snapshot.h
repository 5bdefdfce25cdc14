// The training state as a checkpoint holds it, written and read by all ranks.
#pragma once

#include "qft/checkpoint/restore.h"
#include "qft/checkpoint/writer.h"
#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/batch_sums.h"
#include "qft/engine/instance.h"
#include "qft/train/best_model.h"
#include "qft/train/run_log.h"
#include "qft/train/save_model.h"
#include "qft/train/update_guard.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::train {

/// Counters of a run that continue after a resume.
struct Progression {
  std::int64_t step = 0;  ///< optimizer steps done (skipped ones included)
  GuardState guard;
  std::int64_t total_tokens = 0, label_tokens = 0;
  double elapsed_seconds = 0.0;
  double loss_sum = 0.0;          ///< of the finite losses, for train_loss
  std::int64_t finite_steps = 0;  ///< steps with a finite loss
  engine::RunningReward reward;   ///< of the steps' rewards, where the objective compares them
  BestModel best;

  /// The mean of the finite losses; not a number if there is none.
  double mean_loss() const { return loss_sum / static_cast<double>(finite_steps); }
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
  /// The run ends here on request, to be submitted again: training state is saved under save_only_model, too.
  bool stopped = false;
  checkpoint::RunRecord run;  ///< rank 0's, as the lock
  io::DirLock* lock = nullptr;
};

/// One checkpoint-<step> in flight: model or adapter, masters and optimizer state (each rank its share of every tensor), trainer
/// state. A failure to write is kept, and thrown by commit() on all ranks; older checkpoints stay as they are.
class SnapshotSave {
 public:
  /// Collective. With `staged`, what this rank writes is copied to host memory and written by a thread: the weights may
  /// change as soon as this returns. Without, this returns when it is written. `log` is rank 0's, else null. Configuration,
  /// instance and communicator must outlive the save.
  SnapshotSave(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm, const SnapshotInfo& info,
               const RunLog* log, bool staged);
  /// Waits for the thread. Without commit() nothing is left behind.
  ~SnapshotSave();
  SnapshotSave(const SnapshotSave&) = delete;
  SnapshotSave& operator=(const SnapshotSave&) = delete;

  /// True once this rank has written its files (or failed to).
  bool written() const { return written_; }
  /// Waits for this rank's files, gives the checkpoint its name once all ranks have theirs, and prunes old ones.
  /// Collective. Returns the directory.
  std::filesystem::path commit();

 private:
  void stage_state(engine::Instance& instance, bool copy);
  /// `lane`: of the trace.
  void write_files(std::string_view lane);

  checkpoint::CheckpointWriter writer_;
  nlohmann::json state_;       ///< of the run, for the manifest
  std::string trainer_state_;  ///< rank 0's file
  std::vector<checkpoint::HostSlice> slices_;
  std::vector<at::Tensor> values_;  ///< what slices_ points to
  WriteModel write_model_;
  std::atomic<bool> written_{false};
  std::thread thread_;
};

/// Throws ConfigError where the checkpoint holds tensors that a run of `spec` by `rule` does not have, or none at all: they would
/// be lost silently.
void require_same_tensors(const checkpoint::SharedCheckpoint& saved, const optim::RuleSpec& rule, const optim::Hyper& hyper,
                          const model::ModelSpec& spec);

/// Restores weights, optimizer state and step count. Collective; throws the same Error on all ranks where the checkpoint's
/// tensors are not those that the run trains.
void load_snapshot(const checkpoint::SharedCheckpoint& saved, engine::Instance& instance);

}  // namespace qft::train

// Saves the training state as a checkpoint and restores it, on all ranks.
#pragma once

#include "qft/checkpoint/restore.h"
#include "qft/checkpoint/writer.h"
#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/column_source.h"
#include "qft/engine/instance.h"
#include "qft/train/best_model.h"
#include "qft/train/run_log.h"
#include "qft/train/save_model.h"
#include "qft/train/update_guard.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
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
  double exchange_seconds = 0.0;  ///< rank 0's in exchanges of rows and heads
  double loss_sum = 0.0;          ///< sum of the finite losses, for train_loss
  std::int64_t finite_steps = 0;  ///< steps with a finite loss
  engine::SourceState sources;    ///< state of the objective's sources
  BestModel best;

  /// Returns the mean of the finite losses; NaN if there is none.
  double mean_loss() const { return loss_sum / static_cast<double>(finite_steps); }
};

nlohmann::json to_json(const Progression& p);
Progression progression_from_json(const nlohmann::json& json);

/// Everything that a save writes besides tensors.
struct SnapshotInfo {
  Progression progression;
  std::int64_t total_steps = 0;
  double epoch = 0.0;
  double loss = 0.0;
  nlohmann::json data_position;
  nlohmann::json loss_scaler;
  std::int64_t global_batch_size = 0;
  /// The run ends here on request and will be submitted again: training state is saved even with save_only_model.
  bool stopped = false;
  checkpoint::RunRecord run;  ///< rank 0's; so is the lock
  io::DirLock* lock = nullptr;
};

/// One checkpoint-<step> in flight: model or adapter, masters and optimizer state (each rank writes its share of every tensor),
/// trainer state. A write failure is kept and thrown by commit() on all ranks; older checkpoints stay intact.
class SnapshotSave {
 public:
  /// Collective. With `staged` this rank's data is copied to host memory and a thread writes it: the weights may change as soon
  /// as this returns. Without `staged` the data is written when this returns. `log`: rank 0's; null elsewhere. Configuration,
  /// instance and communicator must outlive the save.
  SnapshotSave(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm, const SnapshotInfo& info,
               const RunLog* log, bool staged);
  /// Waits for the thread. Without commit() leaves nothing behind.
  ~SnapshotSave();
  SnapshotSave(const SnapshotSave&) = delete;
  SnapshotSave& operator=(const SnapshotSave&) = delete;

  /// True once this rank has written its files or failed.
  bool written() const { return written_; }
  /// Waits for this rank's files, renames the checkpoint to its final name once all ranks are done, and prunes old checkpoints.
  /// Collective. Returns the directory.
  std::filesystem::path commit();

 private:
  void stage_state(engine::Instance& instance, bool copy);
  /// `lane`: of the trace.
  void write_files(std::string_view lane);

  checkpoint::CheckpointWriter writer_;
  nlohmann::json state_;       ///< the run's state for the manifest
  std::string trainer_state_;  ///< text of rank 0's file
  std::vector<checkpoint::HostSlice> slices_;
  std::vector<at::Tensor> values_;  ///< the memory that slices_ points to
  WriteModel write_model_;
  std::atomic<bool> written_{false};
  std::thread thread_;
};

/// Throws ConfigError if the checkpoint holds tensors that a run of `spec` with `rule` lacks, because they would be lost
/// silently, or if it holds no training state.
void require_same_tensors(const checkpoint::SharedCheckpoint& saved, const optim::RuleSpec& rule, const optim::Hyper& hyper,
                          const model::ModelSpec& spec);

/// Restores weights, optimizer state and step count. Collective; throws the same Error on all ranks if the checkpoint's tensors
/// differ from the trained ones.
void load_snapshot(const checkpoint::SharedCheckpoint& saved, engine::Instance& instance);

}  // namespace qft::train

// Saves a run's checkpoints: at most one is in flight while training continues.
#pragma once

#include "qft/train/snapshot.h"

#include <filesystem>
#include <memory>
#include <optional>

namespace qft::train {

/// A checkpoint that has been committed.
struct Saved {
  std::filesystem::path dir;
  double seconds = 0.0;        ///< from the start of the save to its commit
  double stall_seconds = 0.0;  ///< of these, what training waited
};

/// All ranks make the same calls in the same order.
class Saver {
 public:
  /// Collective: makes a communicator of its own, so that agreement on a save cannot meet collectives of a step. The
  /// arguments must outlive the saver.
  Saver(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm);

  /// Collective. Begins a save; with async_save the weights may change when this returns. One that is under way is waited
  /// for and committed first, and returned.
  std::optional<Saved> start(const SnapshotInfo& info, const RunLog* log);
  /// Collective at a step's end. Commits the save under way if every rank has written its part.
  std::optional<Saved> poll();
  /// Collective. Waits for the save under way, if any, and commits it.
  std::optional<Saved> finish();

  /// Seconds that training has waited for saves since the last call.
  double take_stall();

 private:
  Saved commit(double stalled_since);

  const config::RunConfig& config_;
  engine::Instance& instance_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<SnapshotSave> save_;
  double started_ = 0.0;      ///< of the save under way, on the steady clock
  double save_stall_ = 0.0;   ///< of the save under way
  double total_stall_ = 0.0;  ///< since take_stall()
};

}  // namespace qft::train

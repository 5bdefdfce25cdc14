// Saves a run's checkpoints. At most one save is in flight while training continues. A save allocates its memory before its
// collectives.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/train/snapshot.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace qft::train {

/// A committed checkpoint.
struct Saved {
  std::filesystem::path dir;
  double seconds = 0.0;        ///< from the start of the save to its commit
  double stall_seconds = 0.0;  ///< the part of `seconds` that training waited
};

/// Runs the saves of one training run. All ranks make the same calls in the same order.
class Saver {
 public:
  /// Collective. Makes its own communicator, so that agreement on a save cannot mix with a step's collectives. The arguments must
  /// outlive the saver.
  Saver(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm);

  /// Begins a save. Collective. First waits for a save in flight, commits and returns it. With async_save the weights may change
  /// as soon as this returns.
  std::optional<Saved> start(const SnapshotInfo& info, const RunLog* log);
  /// Commits the save in flight if every rank has written its part. Call at the end of a step. Collective.
  std::optional<Saved> poll();
  /// Waits for the save in flight, if any, and commits it. Collective.
  std::optional<Saved> finish();

  /// Returns the seconds that training has waited for saves since the last call.
  double take_stall();

 private:
  Saved commit(double stalled_since);

  const config::RunConfig& config_;
  engine::Instance& instance_;
  std::unique_ptr<comm::Communicator> comm_;
  std::unique_ptr<SnapshotSave> save_;
  double started_ = 0.0;      ///< start of the save in flight, steady clock
  double save_stall_ = 0.0;   ///< stall of the save in flight
  double total_stall_ = 0.0;  ///< since the last take_stall()
};

/// Runs `take`, which allocates memory for `what` on this rank and is not collective. If one rank has too little memory, all
/// ranks throw the same Error, with advice for `device`, the model's device. Otherwise the other ranks would wait for it in the
/// next collective. Collective.
void take_memory(comm::Communicator& comm, c10::Device device, const std::string& what, const std::function<void()>& take);

}  // namespace qft::train

// Saving: all ranks write their own slices into tmp-checkpoint-<step>.<owner>; once every rank has succeeded, rank 0
// writes the manifest and gives the directory its name. A kill at any moment leaves the checkpoints that were there.
#pragma once

#include "qft/checkpoint/checkpoint.h"
#include "qft/comm/communicator.h"
#include "qft/io/dir_lock.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// Digits of the ids in names.
inline constexpr int kOwnerDigits = 8;

struct SaveOptions {
  std::filesystem::path output_dir;
  std::int64_t step = 0;
  /// Checkpoints to keep, the new one included; none or below 1: all.
  std::optional<std::int64_t> save_total_limit = {};
  /// Name or path of a checkpoint that retention never removes; empty: none.
  std::filesystem::path best_checkpoint = {};
  /// The run that writes it, for the manifest.
  RunRecord run = {};
  /// Rank 0's hold on output_dir, which must not have been lost when the save begins and ends; null: none is needed.
  io::DirLock* lock = nullptr;
};

/// One checkpoint being written. Where output_dir is private to each node, what the other nodes write is sent
/// to rank 0's disk at commit.
class CheckpointWriter {
 public:
  /// Collective: makes the temporary directory, and removes those of runs that are gone, from the disks of other nodes too:
  /// whoever saves here is alone here. Throws the same Error on all ranks. `comm` (its host side is used) and `storage` must
  /// outlive the writer.
  CheckpointWriter(comm::Communicator& comm, io::Storage& storage, SaveOptions options);
  /// Without commit() nothing is left behind.
  ~CheckpointWriter();

  /// This rank's slices, into <stem>-<rank>-of-<ranks>.safetensors (none for no slices). Not collective, may
  /// run on another thread: a failure is kept and thrown by commit() on all ranks.
  void write_slices(std::span<const HostSlice> slices, const std::string& stem = kStateStem);

  /// A plain file, written by `write` at the path it gets, synced (write_file, copy_file, SafetensorsWriter
  /// do). Ranks must choose different names. Not collective; failures as above.
  void add_file(const std::string& name, const std::function<void(io::Storage&, const std::filesystem::path&)>& write);
  /// Several files at once (a sharded model): `write` gets the directory and returns what it wrote there. It runs even
  /// where something failed before, so it may be collective as long as a failure of its own does not cut that short.
  void add_files(const std::function<std::vector<FileRecord>(io::Storage&, const std::filesystem::path&)>& write);

  /// Collective. A checkpoint of another branch that has the name is set aside, another program's directory is an error. `state`
  /// is rank 0's; of its keys `qft-ckpt inspect` shows "epoch", "loss", "strategy", "model_name_or_path" and "global_batch_size".
  /// Returns the checkpoint's directory after pruning old ones. Throws the same Error on all ranks, naming rank and reason, where
  /// any rank failed; then no checkpoint was added.
  std::filesystem::path commit(const nlohmann::json& state);

 private:
  /// Runs `body` and keeps the first failure; guarded(): unless there is one.
  void attempt(const std::function<void()>& body);
  void guarded(const std::function<void()>& body);
  void find_shared();
  void remove_left(const std::vector<std::string>& left);
  void collect_staged(const std::vector<nlohmann::json>& parts);
  Manifest assemble(const std::vector<nlohmann::json>& parts, const nlohmann::json& state) const;

  comm::Communicator& comm_;
  io::Storage& storage_;
  SaveOptions options_;
  std::string owner_;                       // of the temporary names, this save's alone
  std::filesystem::path target_, dir_;      // dir_: where this rank writes
  std::unique_ptr<io::CommitDir> commit_;   // rank 0's
  std::unique_ptr<io::CommitDir> staging_;  // of a rank that does not see rank 0's directory
  std::vector<FileRecord> files_;
  std::vector<TensorRecord> tensors_;  // this rank's ranges only
  std::string error_;
};

/// Removes checkpoints that are ours above `limit`, those of given-up branches first, then the oldest; never `newest` and never
/// `best`. A failure is logged, not thrown.
void prune_checkpoints(io::Storage& storage, const std::filesystem::path& output_dir, std::int64_t limit,
                       const std::filesystem::path& newest, const std::filesystem::path& best);

}  // namespace qft::checkpoint

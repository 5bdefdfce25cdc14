// Saves checkpoints: all ranks write their own slices into tmp-checkpoint-<step>.<owner>; after every rank has succeeded, rank 0
// writes the manifest and renames the directory. A kill at any moment leaves the earlier checkpoints intact.
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

/// Hex digits of the ids in names.
inline constexpr int kOwnerDigits = 8;

struct SaveOptions {
  std::filesystem::path output_dir;
  std::int64_t step = 0;
  /// Number of checkpoints to keep, the new one included; nullopt or below 1: all.
  std::optional<std::int64_t> save_total_limit = {};
  /// Name or path of a checkpoint that retention never removes; empty: none.
  std::filesystem::path best_checkpoint = {};
  /// The run that writes the checkpoint, for the manifest.
  RunRecord run = {};
  /// Rank 0's lock on output_dir, which must still be held when the save begins and ends; null: no lock is needed.
  io::DirLock* lock = nullptr;
};

/// Writes one checkpoint. If output_dir is private to each node, the other nodes' files are sent to rank 0's disk at commit.
class CheckpointWriter {
 public:
  /// Collective. Creates the temporary directory and removes those of dead runs, on the disks of other nodes too: the saving run
  /// has the directory for itself. Throws the same Error on all ranks. `comm` (its host side is used) and `storage` must outlive
  /// the writer.
  CheckpointWriter(comm::Communicator& comm, io::Storage& storage, SaveOptions options);
  /// Without a commit() removes everything that was written.
  ~CheckpointWriter();

  /// Writes this rank's slices into <stem>-<rank>-of-<ranks>.safetensors (no file without slices). Not collective, may run on
  /// another thread: a failure is kept, and commit() throws it on all ranks.
  void write_slices(std::span<const HostSlice> slices, const std::string& stem = kStateStem);

  /// Adds a plain file. `write` must write and sync it at the path that it receives (write_file, copy_file and SafetensorsWriter
  /// sync). Ranks must choose different names. Not collective; failures as in write_slices().
  void add_file(const std::string& name, const std::function<void(io::Storage&, const std::filesystem::path&)>& write);
  /// Adds several files (a sharded model). `write` receives the directory and returns the files that it wrote. It runs even after
  /// an earlier failure, so it may be collective if its own failures do not cut the collective calls short.
  void add_files(const std::function<std::vector<FileRecord>(io::Storage&, const std::filesystem::path&)>& write);

  /// Collective. Finishes the checkpoint and prunes old ones; returns its directory. A checkpoint of another branch with the same
  /// name is set aside; another program's directory is an error. Only rank 0's `state` is used; `qft-ckpt inspect` shows its keys
  /// "epoch", "loss", "strategy", "model_name_or_path" and "global_batch_size". If any rank failed, throws the same Error on all
  /// ranks, with rank and reason, and adds no checkpoint.
  std::filesystem::path commit(const nlohmann::json& state);

 private:
  /// Runs `body` and keeps the first failure. guarded() does nothing after a failure.
  void attempt(const std::function<void()>& body);
  void guarded(const std::function<void()>& body);
  void find_shared();
  void remove_leftovers(const std::vector<std::string>& left);
  void collect_staged(const std::vector<nlohmann::json>& parts);
  Manifest assemble(const std::vector<nlohmann::json>& parts, const nlohmann::json& state) const;

  comm::Communicator& comm_;
  io::Storage& storage_;
  SaveOptions options_;
  std::string owner_;                       // suffix of the temporary names, unique to this save
  std::filesystem::path target_, dir_;      // dir_: this rank writes here
  std::unique_ptr<io::CommitDir> commit_;   // on rank 0
  std::unique_ptr<io::CommitDir> staging_;  // on a rank that does not see rank 0's directory
  std::vector<FileRecord> files_;
  std::vector<TensorRecord> tensors_;  // this rank's ranges only
  std::string error_;
};

/// Removes our checkpoints above `limit`: first those of abandoned branches, then the oldest; never `newest` and never `best`. A
/// failure is logged, not thrown.
void prune_checkpoints(io::Storage& storage, const std::filesystem::path& output_dir, std::int64_t limit,
                       const std::filesystem::path& newest, const std::filesystem::path& best);

}  // namespace qft::checkpoint

// Loads a checkpoint with many ranks: each reads its own slices, whichever ranks wrote the checkpoint. A rank that does not see
// the directory receives its slices from rank 0.
#pragma once

#include "qft/checkpoint/checkpoint.h"
#include "qft/comm/communicator.h"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// Collective. Returns find_latest_verified() of checkpoint.h as rank 0 sees it; the ranks that see the directory share the
/// work of checking. With `from`, considers only branches that began at that checkpoint. Returns the same on all ranks.
std::optional<std::filesystem::path> find_latest_verified(comm::Communicator& comm, const std::filesystem::path& output_dir,
                                                          const std::optional<std::filesystem::path>& from = {});

/// Collective. Throws the same Error on all ranks unless every byte of checkpoint `dir` matches its manifest; the ranks that see
/// the directory share the work. Throws ConfigError if `dir` is not a checkpoint.
void require_verified(comm::Communicator& comm, const std::filesystem::path& dir);

/// A checkpoint opened by all ranks of a communicator, which must outlive it.
class SharedCheckpoint {
 public:
  /// Collective. Throws the same Error on all ranks if rank 0 cannot open the checkpoint.
  SharedCheckpoint(comm::Communicator& comm, std::filesystem::path dir);

  const std::filesystem::path& dir() const { return dir_; }
  /// The same on all ranks.
  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }

  /// Fills this rank's targets. Collective (also with an empty list). Throws the same Error on all ranks if a tensor is
  /// missing, has another dtype or shape, or cannot be read.
  void read(std::span<const HostSlice> targets) const;

 private:
  std::string serve(int rank) const;
  void fetch(std::span<const HostSlice> targets) const;

  comm::Communicator& comm_;
  std::filesystem::path dir_;
  Manifest manifest_;
  std::optional<Checkpoint> local_;  // set if this rank sees the directory
  std::vector<bool> sees_;           // whether each rank sees the directory
};

}  // namespace qft::checkpoint

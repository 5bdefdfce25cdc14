// Loading by many ranks: each reads what it owns now, whatever ranks wrote it. A rank that does not see the
// directory gets its part from rank 0.
#pragma once

#include "qft/checkpoint/checkpoint.h"
#include "qft/comm/communicator.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// Collective. As find_latest_verified() in checkpoint.h as seen by rank 0; the ranks that see the directory
/// share the work of checking. With `from`, only of branches that began at that checkpoint. The same answer on all ranks.
std::optional<std::filesystem::path> find_latest_verified(comm::Communicator& comm, const std::filesystem::path& output_dir,
                                                          const std::optional<std::filesystem::path>& from = {});

/// Collective. Throws the same Error on all ranks unless every byte of checkpoint `dir` is as its manifest says; the ranks
/// that see the directory share the work. ConfigError where it is no checkpoint.
void require_verified(comm::Communicator& comm, const std::filesystem::path& dir);

/// A checkpoint opened by all ranks of a communicator, which must outlive it.
class SharedCheckpoint {
 public:
  /// Collective; throws the same Error on all ranks where rank 0 cannot open it.
  SharedCheckpoint(comm::Communicator& comm, std::filesystem::path dir);

  const std::filesystem::path& dir() const { return dir_; }
  /// The same on all ranks.
  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }

  /// Fills this rank's targets. Collective (with an empty list too); throws the same Error on all ranks where
  /// a tensor is missing, has another dtype or shape, or cannot be read.
  void read(std::span<const HostSlice> targets) const;

 private:
  std::string serve(int rank) const;
  void fetch(std::span<const HostSlice> targets) const;

  comm::Communicator& comm_;
  std::filesystem::path dir_;
  Manifest manifest_;
  std::optional<Checkpoint> local_;  // where this rank sees it
  std::vector<bool> sees_;           // by rank
};

}  // namespace qft::checkpoint

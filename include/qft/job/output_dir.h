// Holds a run's output_dir.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/io/dir_lock.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace qft::job {

/// The folder in output_dir for packs that training makes itself.
inline constexpr const char* kPackFolder = "packs";

/// From construction to destruction rank 0 holds the lock of output_dir: no other run and no qft-ckpt gc writes there.
class OutputDir {
 public:
  /// Creates the directory if necessary and checks that rank 0 can write there. Collective; throws the same Error on all ranks,
  /// with the holder's name if a live run uses the directory.
  OutputDir(const std::filesystem::path& dir, comm::Communicator& comm, const char* program = "qft train");

  /// Rank 0's lock; null on other ranks.
  io::DirLock* lock() { return lock_ ? &*lock_ : nullptr; }

 private:
  /// Directories created here. Removes those that are empty at the end, for example after a failed start.
  struct CreatedDirs {
    ~CreatedDirs();
    std::vector<std::filesystem::path> dirs;  ///< the deepest first
  };
  CreatedDirs created_;
  std::optional<io::DirLock> lock_;
};

/// Returns for each rank whether it sees the same directory as rank 0 under this path. The directory must exist on rank 0.
/// Collective; writes and removes a small file there.
std::vector<bool> ranks_sharing(comm::Communicator& comm, const std::filesystem::path& dir);

}  // namespace qft::job

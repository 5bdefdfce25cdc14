// A run's hold on its output_dir.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/io/dir_lock.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace qft::job {

/// The folder of output_dir that holds packs made by training itself.
inline constexpr const char* kPackFolder = "packs";

/// From construction to destruction rank 0 holds the lock of output_dir, so that no other run or qft-ckpt gc writes there.
class OutputDir {
 public:
  /// Makes the directory where it is missing and proves that rank 0 can write there. Collective; throws the same Error on all
  /// ranks, naming the holder where a live run uses the directory.
  OutputDir(const std::filesystem::path& dir, comm::Communicator& comm, const char* program = "qft train");

  /// Rank 0's, else null.
  io::DirLock* lock() { return lock_ ? &*lock_ : nullptr; }

 private:
  /// Directories that were made here; those that are empty in the end, as after a failed start, go again.
  struct Made {
    ~Made();
    std::vector<std::filesystem::path> dirs;  ///< the deepest first
  };
  Made made_;
  std::optional<io::DirLock> lock_;
};

/// For each rank whether it sees the directory that rank 0 sees under this path; it must exist on rank 0. Collective; writes and
/// removes a small file there.
std::vector<bool> ranks_sharing(comm::Communicator& comm, const std::filesystem::path& dir);

}  // namespace qft::job

// Memory limits of a job on its node. Private to device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::device {

/// Bytes that a job may take on this node.
struct JobLimit {
  std::int64_t bytes = 0;
  std::optional<std::int64_t> used;  ///< bytes in use, without the page cache; none: not counted
  std::string source;                ///< the file or variable that sets the limit
};

/// Returns all limits in force: limits of each control group that this process is in, and of SLURM's allocation. PBS has no
/// variable for it and sets control groups or process limits. `root` as in cgroups(). Throws ConfigError if a variable is not a
/// size.
std::vector<JobLimit> job_limits(const std::filesystem::path& root = "/");

}  // namespace qft::device

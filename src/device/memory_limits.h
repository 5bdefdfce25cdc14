// What a job may take of its node's memory. Private to device.
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
  std::optional<std::int64_t> used;  ///< what is taken of them, without the page cache; none: nobody counts
  std::string source;                ///< the file or variable that says so
};

/// All limits that hold: of each control group that this process is in, and of SLURM's allocation (PBS has no
/// variable for it, and sets control groups or process limits). `root` as in cgroups(). Throws ConfigError on
/// a variable that is no size.
std::vector<JobLimit> job_limits(const std::filesystem::path& root = "/");

}  // namespace qft::device

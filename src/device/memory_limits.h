// Memory limits of a job on its node, and the control groups that limit this process, inside and outside a namespace. Private to
// device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

struct Cgroup {
  std::filesystem::path dir;
  bool unified = false;  ///< version 2
};

/// Returns the control groups whose `controller` ("memory", "cpu") may limit this process, each group before its parent: version
/// 2 groups, and version 1 groups if the controller is mounted. `root`: the folder with /proc and the mounts; tests use another
/// one.
std::vector<Cgroup> cgroups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace qft::device

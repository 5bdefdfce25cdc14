// The control groups that limit this process, inside and outside a namespace. Private to device.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace qft::device {

struct Cgroup {
  std::filesystem::path dir;
  bool unified = false;  ///< version 2
};

/// Returns the control groups whose `controller` ("memory", "cpu") may limit this process, each group before its parent: version
/// 2 groups, and version 1 groups if the controller is mounted. `root`: the folder with /proc and the mounts; tests use another
/// one.
std::vector<Cgroup> cgroups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace qft::device

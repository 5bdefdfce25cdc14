// The control groups that bound this process, inside and outside a namespace of their own. Private to device.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace qft::device {

struct Cgroup {
  std::filesystem::path dir;
  bool unified = false;  ///< version 2
};

/// Those that `controller` ("memory", "cpu") may bound this process by, each group before the one around it:
/// of version 2, and of version 1 where the controller is mounted. `root` is where /proc and the mounts lie:
/// another one in tests.
std::vector<Cgroup> cgroups(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace qft::device

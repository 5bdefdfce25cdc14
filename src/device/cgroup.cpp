#include "cgroup.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

namespace qft::device {
namespace {

namespace fs = std::filesystem;

/// A mount in /proc/self/mountinfo: its mount point, and the directory of its file system that is visible there.
struct Mount {
  std::string root, point, type, options;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool lists(const std::string& text, std::string_view word) {
  const auto words = split(text, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Decodes blanks and backslashes, which are written as three octal digits.
std::string unescape(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 3 < text.size() && text.find_first_not_of("01234567", i + 1) > i + 3;
    plain += escaped ? static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)) : text[i];
    if (escaped) i += 3;
  }
  return plain;
}

/// proc(5): id parent device ROOT POINT options [optional fields] - TYPE source OPTIONS
std::vector<Mount> cgroup_mounts(const fs::path& root) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto fields = split(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields.end() - dash < 4 || !dash[1].starts_with("cgroup")) continue;
    mounts.push_back({unescape(fields[3]), unescape(fields[4]), dash[1], dash[3]});
  }
  return mounts;
}

/// Returns `inner` relative to `outer`; none if it lies elsewhere.
std::optional<fs::path> below(const fs::path& inner, const fs::path& outer) {
  const fs::path relative = inner.lexically_relative(outer);
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative;
}

}  // namespace

std::vector<Cgroup> cgroups(std::string_view controller, const fs::path& root) {
  std::vector<Cgroup> found;
  const auto mounts = cgroup_mounts(root);
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/slurm/job_7", or in version 2 "0::/system.slice"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const bool unified = controllers.empty();
    if (!unified && !lists(controllers, controller)) continue;
    for (const Mount& mount : mounts) {
      if (unified ? mount.type != "cgroup2" : mount.type != "cgroup" || !lists(mount.options, controller)) continue;
      const fs::path top = root / fs::path(mount.point).relative_path();
      // A container may see its own group at the mount point, but a path from outside.
      const fs::path inside = below(path, mount.root).value_or(".");
      for (fs::path dir = inside; dir != "." && !dir.empty(); dir = dir.parent_path())
        if (fs::is_directory(top / dir)) found.push_back({top / dir, unified});
      found.push_back({top, unified});
      break;
    }
  }
  return found;
}

}  // namespace qft::device

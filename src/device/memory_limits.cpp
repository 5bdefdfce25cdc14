#include "memory_limits.h"

#include "qft/core/error.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace qft::device {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kMegabyte = 1 << 20;

/// Returns the number in a file; none if the file is missing or says "max".
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// Sums the values of the given keys over a file's lines "key value".
std::int64_t sum_of(const fs::path& path, std::initializer_list<std::string_view> keys) {
  std::ifstream file(path);
  std::int64_t sum = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) sum += value;
  return sum;
}

/// Returns the group's memory without file pages, which the kernel frees when memory is short.
std::int64_t used_of(const Cgroup& group) {
  const auto used = number_in(group.dir / (group.unified ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
  const fs::path stat = group.dir / "memory.stat";
  const auto files =
      group.unified ? sum_of(stat, {"inactive_file", "active_file"}) : sum_of(stat, {"total_inactive_file", "total_active_file"});
  return std::max<std::int64_t>(0, used - files);
}

void add_cgroup(const Cgroup& group, std::vector<JobLimit>& limits) {
  for (const char* name : {"memory.max", "memory.high", "memory.limit_in_bytes"})
    if (const auto bytes = number_in(group.dir / name)) limits.push_back({*bytes, used_of(group), (group.dir / name).string()});
}

/// Returns the whole number in a SLURM variable; none if it is not set or 0, which means the whole node.
std::optional<std::int64_t> variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view value(text);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0)
    fail_config("the environment's {} is '{}', not a whole number: correct or unset it", name, value);
  return number > 0 ? std::optional(number) : std::nullopt;
}

/// A size in MB, and the count it applies to.
struct SlurmSize {
  const char* size;
  const char* each;  ///< null: per node
};
constexpr SlurmSize kSlurm[] = {
    {"SLURM_MEM_PER_NODE", nullptr}, {"SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"}, {"SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE"}};

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

std::vector<JobLimit> job_limits(const fs::path& root) {
  std::vector<JobLimit> limits;
  for (const Cgroup& group : cgroups("memory", root)) add_cgroup(group, limits);
  for (const auto& [size, each] : kSlurm) {
    const auto megabytes = variable(size);
    const auto count = each == nullptr ? std::optional<std::int64_t>(1) : variable(each);
    if (megabytes && count)
      limits.push_back(
          {*megabytes * *count * kMegabyte, std::nullopt, each == nullptr ? size : fmt::format("{} x {}", size, each)});
  }
  return limits;
}

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

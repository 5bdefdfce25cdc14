#include "memory_limits.h"

#include "qft/core/error.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "cgroup.h"

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

}  // namespace qft::device

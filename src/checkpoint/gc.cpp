#include "qft/checkpoint/gc.h"

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/io/file.h"

#include <algorithm>
#include <set>

#include "stale.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_plain_directory(const fs::path& path) {
  return fs::is_directory(fs::symlink_status(path));
}

// Total bytes of the files below `path`, and the time since the last change of any of them.
struct Extent {
  std::uint64_t bytes = 0;
  std::chrono::seconds age = std::chrono::seconds::max();
};
Extent measure(const fs::path& path) {
  Extent extent;
  const auto now = fs::file_time_type::clock::now();
  const auto look = [&](const fs::path& p) {
    std::error_code code;
    const fs::file_status status = fs::symlink_status(p, code);
    if (code || fs::is_symlink(status)) return;
    if (fs::is_regular_file(status)) extent.bytes += fs::file_size(p, code);
    const auto changed = fs::last_write_time(p, code);
    if (!code) extent.age = std::min(extent.age, std::chrono::duration_cast<std::chrono::seconds>(now - changed));
  };
  look(path);
  std::error_code code;
  if (is_plain_directory(path))
    for (fs::recursive_directory_iterator it(path, code), end; !code && it != end; it.increment(code)) look(it->path());
  return extent;
}

std::string duration_text(std::chrono::seconds age) {
  return age < std::chrono::minutes(2) ? fmt::format("{} s", age.count()) : fmt::format("{} min", age.count() / 60);
}

// Returns the names of the checkpoints that trainer states of this directory and of the live branch name as the best.
std::set<std::string> best_names(const fs::path& output_dir, const std::vector<Entry>& entries) {
  std::set<std::string> names;
  const auto add_state = [&](const fs::path& file) {
    if (!fs::exists(file)) return;
    const nlohmann::json state = io::read_json(file);
    if (!state.is_object()) return;
    const nlohmann::json value = state.value("best_model_checkpoint", nlohmann::json());
    if (value.is_string() && !value.get<std::string>().empty())
      names.insert(fs::path(value.get<std::string>()).filename().string());
  };
  add_state(output_dir / "trainer_state.json");
  for (const Entry& e : entries)
    if (e.on_live_branch) add_state(e.dir / "trainer_state.json");
  return names;
}

// Decides about committed checkpoints.
void plan_checkpoints(const fs::path& output_dir, const GcOptions& options, std::vector<GcEntry>& plan) {
  const std::vector<Entry> entries = rank_checkpoints(output_dir);
  const std::set<std::string> best = options.keep ? best_names(output_dir, entries) : std::set<std::string>{};
  std::int64_t good = 0;
  for (const Entry& e : entries) {
    GcEntry entry{e.dir, false, e.reason, measure(e.dir).bytes};
    const std::string branch = e.on_live_branch ? "" : ", of an abandoned branch";
    if (e.origin == Origin::damaged) {
      entry.reason = "damaged: not counted, kept for inspection: " + e.reason;
    } else if (e.origin != Origin::ours) {
      // e.reason explains it
    } else if (!options.keep) {
      entry.reason = "committed" + branch;
    } else if (good < *options.keep) {
      if (const VerifyReport report = verify(e.dir); !report.ok()) {
        entry.reason = "damaged: not counted, kept for inspection: " + report.errors.front();
      } else {
        ++good;
        entry.reason = fmt::format("verified, number {} of {} to keep{}", good, *options.keep, branch);
      }
    } else if (best.count(e.dir.filename().string())) {
      entry.reason = "the best checkpoint of the run";
    } else {
      // Beyond the limit the contents do not matter: the manifest proves that it is a checkpoint of qft.
      entry.remove = true;
      entry.reason = fmt::format("beyond the {} best to resume from{}", *options.keep, branch);
    }
    plan.push_back(std::move(entry));
  }
}

// Returns why a name is unfinished or outgoing; null for any other name.
const char* unfinished_reason(const std::string& name) {
  switch (classify(name)) {
    case Unfinished::none:
      return nullptr;
    case Unfinished::save:
      return "a save that was never committed";
    case Unfinished::removal:
      return "an interrupted removal";
  }
  return nullptr;
}

}  // namespace

std::vector<GcEntry> plan_gc(const fs::path& output_dir, const GcOptions& options) {
  io::require_directory(output_dir, "output_dir");
  if (options.keep && *options.keep < 1) fail_config("{} checkpoints cannot be kept: give 1 or more", *options.keep);
  std::vector<GcEntry> plan;
  plan_checkpoints(output_dir, options, plan);
  for (const std::string& name : io::posix_storage().list(output_dir)) {
    const fs::path path = output_dir / name;
    const char* reason = unfinished_reason(name);
    if (reason == nullptr || fs::is_symlink(fs::symlink_status(path))) continue;
    const Extent extent = measure(path);
    const bool old = extent.age >= options.least_age;
    plan.push_back(
        {path, old,
         old ? reason : fmt::format("{}, but changed {} ago: a run may be writing it", reason, duration_text(extent.age)),
         extent.bytes});
  }
  return plan;
}

std::uint64_t run_gc(io::Storage& storage, const std::vector<GcEntry>& plan) {
  std::uint64_t bytes = 0;
  for (const GcEntry& entry : plan) {
    if (!entry.remove) continue;
    remove_aside(storage, entry.path);
    bytes += entry.bytes;
  }
  return bytes;
}

}  // namespace qft::checkpoint

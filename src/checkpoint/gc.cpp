#include "qft/checkpoint/gc.h"

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/verify.h"
#include "qft/checkpoint/writer.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
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

const std::string kPruned = std::string(io::kTempPrefix) + "pruned-";
const std::string kAbandoned = "abandoned-";

/// Removes a final part of the form <separator><8 hex digits>; returns false if there is none.
bool cut_id(std::string_view& name, char separator) {
  const auto at = name.rfind(separator);
  if (at == name.npos || name.size() - at != 1 + kOwnerDigits || name.find_first_not_of("0123456789abcdef", at + 1) != name.npos)
    return false;
  name = name.substr(0, at);
  return true;
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

void prune_checkpoints(io::Storage& storage, const fs::path& output_dir, std::int64_t limit, const fs::path& newest,
                       const fs::path& best) {
  try {
    std::vector<Entry> entries = rank_checkpoints(output_dir);
    std::erase_if(entries, [](const Entry& e) { return e.origin != Origin::ours; });
    auto excess = static_cast<std::int64_t>(entries.size()) - limit;
    for (auto e = entries.rbegin(); e != entries.rend() && excess > 0; ++e) {
      const fs::path name = e->dir.filename();
      if (name == newest.filename() || name == best.filename()) continue;
      remove_aside(storage, e->dir);
      --excess;
    }
  } catch (const std::exception& e) {
    log::warn("old checkpoints in '{}' could not be removed: {}", output_dir.string(), e.what());
  }
}

std::optional<std::int64_t> step_aside(std::string_view name) {
  if (!name.starts_with(kAbandoned) || !cut_id(name, '-')) return std::nullopt;
  return step_of(name.substr(kAbandoned.size()));
}

Unfinished classify(const std::string& name) {
  if (name.starts_with(kPruned)) {
    const std::string rest = name.substr(kPruned.size());
    return step_of(rest) || step_aside(rest) || classify(rest) != Unfinished::none ? Unfinished::removal : Unfinished::none;
  }
  // "tmp-checkpoint-<step>.<owner>", or "tmp-checkpoint-<step>-<rank>.<owner>" on a disk that rank 0 does not see. A name
  // without an owner belongs to another program: some Trainers of transformers use such names.
  std::string_view rest = name;
  if (!rest.starts_with(io::kTempPrefix) || !cut_id(rest, '.')) return Unfinished::none;
  rest.remove_prefix(io::kTempPrefix.size());
  const auto dash = rest.find('-', directory_name(0).size());
  const bool rank = dash != rest.npos && dash + 1 < rest.size() && rest.find_first_not_of("0123456789", dash + 1) == rest.npos;
  return step_of(rank ? rest.substr(0, dash) : rest) ? Unfinished::save : Unfinished::none;
}

std::vector<std::string> list_unfinished(io::Storage& storage, const fs::path& output_dir) {
  std::vector<std::string> names = storage.list(output_dir);
  std::erase_if(names, [](const std::string& name) { return classify(name) == Unfinished::none; });
  return names;
}

std::string owner_of(std::string_view unfinished) {
  return classify(std::string(unfinished)) == Unfinished::save ? std::string(unfinished.substr(unfinished.size() - kOwnerDigits))
                                                               : "";
}

void remove_unfinished(io::Storage& storage, const fs::path& output_dir, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    log::info("removing '{}', which an earlier run left unfinished", (output_dir / name).string());
    io::remove_tree(storage, output_dir / name);
  }
}

void remove_aside(io::Storage& storage, const fs::path& dir) {
  fs::path aside = dir;
  if (!dir.filename().string().starts_with(kPruned)) {
    aside = dir.parent_path() / (kPruned + dir.filename().string());
    storage.rename(dir, aside);
    storage.sync_directory(dir.parent_path());
  }
  io::remove_tree(storage, aside);
}

void set_aside(io::Storage& storage, const fs::path& dir) {
  if (!storage.exists(dir)) return;
  const Entry there = examine(dir);
  if (there.origin == Origin::link || there.origin == Origin::foreign)
    fail("'{}' exists and is not a checkpoint of qft ({}): it is not replaced; move it away, or choose another output_dir",
         dir.string(), there.reason);
  const std::string stem = kAbandoned + dir.filename().string() + "-";
  fs::path aside =
      dir.parent_path() / (stem + (there.run.id.empty() ? random_hex(kOwnerDigits) : there.run.id.substr(0, kOwnerDigits)));
  while (storage.exists(aside)) aside = dir.parent_path() / (stem + random_hex(kOwnerDigits));
  log::warn("'{}' belongs to another branch, or is damaged: renamed to '{}'", dir.string(), aside.filename().string());
  storage.rename(dir, aside);
  storage.sync_directory(dir.parent_path());
}

}  // namespace qft::checkpoint

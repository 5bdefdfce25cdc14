#include "qft/checkpoint/branch.h"

#include "qft/checkpoint/checkpoint.h"
#include "qft/checkpoint/verify.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"
#include "qft/io/file.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "stale.h"
#include <fmt/ranges.h>

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;

fs::path normal(const fs::path& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

/// True if `dir` has a manifest of qft, however damaged. Other programs use this file name too.
bool has_our_manifest(const fs::path& dir) {
  try {
    return io::read_text_file(dir / kManifestFile, std::uint64_t{1} << 31).find(kManifestFormat) != std::string::npos;
  } catch (const Error&) {
    return false;
  }
}

/// Returns the live branch's checkpoint: the branch that began last.
const Entry* live_of(const std::vector<Entry>& entries) {
  const Entry* live = nullptr;
  const auto rank = [](const Entry& e) { return std::tuple(e.run.number, !e.aside, e.step); };
  for (const Entry& e : entries)
    if (e.origin == Origin::ours && (live == nullptr || rank(e) > rank(*live))) live = &e;
  return live;
}

const Entry* find_run(const std::vector<Entry>& entries, const std::string& id) {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.origin == Origin::ours && e.run.id == id; });
  return found == entries.end() ? nullptr : &*found;
}

/// Calls visit(point) for each branch point of `run` and its ancestors, nearest first, until it returns true.
template <class Visit>
bool any_ancestor(const std::vector<Entry>& entries, const RunRecord& run, const Visit& visit) {
  const RunRecord* at = &run;
  for (std::size_t depth = 0; depth <= entries.size() && at->parent; ++depth) {
    if (visit(*at->parent)) return true;
    const Entry* parent = find_run(entries, at->parent->run);
    if (parent == nullptr) return false;
    at = &parent->run;
  }
  return false;
}

void mark_line(std::vector<Entry>& entries) {
  const Entry* live = live_of(entries);
  if (live == nullptr) return;
  std::map<std::string, std::int64_t> last{{live->run.id, std::numeric_limits<std::int64_t>::max()}};  // last step, by run
  any_ancestor(entries, live->run, [&](const BranchPoint& point) {
    last.emplace(point.run, point.step);
    return false;
  });
  for (Entry& e : entries) {
    const auto bound = last.find(e.run.id);
    e.on_live_branch = e.origin == Origin::ours && !e.aside && bound != last.end() && e.step <= bound->second;
  }
}

bool is_same(const BranchPoint& a, const BranchPoint& b) {
  if (!a.checksum.empty() && !b.checksum.empty()) return a.checksum == b.checksum;
  return a.path == b.path;
}

}  // namespace

Entry examine(const fs::path& dir) {
  Entry entry;
  entry.dir = dir;
  const std::string name = dir.filename().string();
  entry.step = step_of(name).value_or(step_aside(name).value_or(0));
  entry.aside = step_aside(name).has_value();
  if (!fs::is_directory(fs::symlink_status(dir))) {
    entry.origin = Origin::link;
    entry.reason = "a link: not followed";
    return entry;
  }
  if (!has_our_manifest(dir)) {
    entry.reason = fmt::format("has no {} of qft: it belongs to another program and is not touched", kManifestFile);
    return entry;
  }
  const VerifyReport report = verify_manifest(dir);
  if (!report.ok()) {
    entry.origin = Origin::damaged;
    entry.reason = report.errors.front();
    return entry;
  }
  const Manifest manifest = Manifest::read(dir);
  entry.origin = Origin::ours;
  entry.step = manifest.step;
  entry.run = manifest.run;
  entry.checksum = manifest.checksum;
  entry.has_state = !manifest.tensors.empty();
  return entry;
}

std::vector<Entry> rank_checkpoints(const fs::path& output_dir) {
  std::vector<Entry> entries;
  for (const Candidate& c : list_checkpoints(output_dir)) entries.push_back(examine(c.dir));
  if (fs::is_directory(output_dir))
    for (const std::string& name : io::posix_storage().list(output_dir))
      if (step_aside(name)) entries.push_back(examine(output_dir / name));
  mark_line(entries);
  const auto rank = [](const Entry& e) {
    const bool known = e.origin == Origin::ours || e.origin == Origin::damaged;
    const bool line = e.on_live_branch || (e.origin == Origin::damaged && !e.aside);
    return std::tuple(known, line, line ? 0 : e.run.number, e.step);
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) { return rank(a) > rank(b); });
  return entries;
}

BranchPoint branch_point(const fs::path& dir) {
  BranchPoint point;
  point.path = normal(dir).string();
  const Entry entry = examine(dir);
  point.run = entry.run.id;
  point.step = entry.step;
  point.checksum = entry.checksum;
  return point;
}

std::vector<fs::path> resume_order(const fs::path& output_dir, const std::optional<BranchPoint>& from) {
  const std::vector<Entry> entries = rank_checkpoints(output_dir);
  std::vector<const Entry*> usable;
  for (const Entry& e : entries) {
    if (e.origin == Origin::foreign || e.origin == Origin::link) continue;
    const auto began = [&](const BranchPoint& point) { return is_same(point, *from); };
    if (from && !(e.origin == Origin::ours && any_ancestor(entries, e.run, began))) continue;
    usable.push_back(&e);
  }
  std::stable_partition(usable.begin(), usable.end(),
                        [](const Entry* e) { return e->has_state || e->origin == Origin::damaged; });
  std::vector<fs::path> order;
  for (const Entry* e : usable) order.push_back(e->dir);
  return order;
}

RunRecord next_run(const fs::path& output_dir, const std::optional<fs::path>& from, bool named) {
  const std::vector<Entry> entries = rank_checkpoints(output_dir);
  const Entry* live = live_of(entries);
  std::optional<BranchPoint> parent;
  if (from) {
    parent = branch_point(*from);
    if (!named && live != nullptr && !parent->run.empty() && parent->run == live->run.id) return live->run;
  }
  return {random_hex(), 1 + (live == nullptr ? 0 : live->run.number), parent};
}

void log_foreign(const fs::path& output_dir) {
  std::vector<std::string> names;
  for (const Entry& e : rank_checkpoints(output_dir))
    if (e.origin == Origin::foreign) names.push_back(e.dir.filename().string());
  if (names.empty()) return;
  std::reverse(names.begin(), names.end());
  log::warn("'{}' holds checkpoints of another program, which are neither used nor removed: {}", output_dir.string(),
            fmt::join(names, ", "));
}

void remove_ours(io::Storage& storage, const fs::path& output_dir) {
  for (const Entry& e : rank_checkpoints(output_dir)) {
    if (e.origin != Origin::ours) continue;
    log::warn("overwrite_output_dir: removing '{}' of an earlier run", e.dir.string());
    remove_aside(storage, e.dir);
  }
}

}  // namespace qft::checkpoint

#include "qft/checkpoint/branch.h"
#include "qft/checkpoint/writer.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/random_id.h"

#include <algorithm>
#include <filesystem>

#include "stale.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
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

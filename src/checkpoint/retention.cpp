#include "qft/checkpoint/writer.h"
#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <filesystem>

#include "stale.h"

namespace qft::checkpoint {
namespace {

namespace fs = std::filesystem;
const std::string kPruned = std::string(io::kTempPrefix) + "pruned-";

}  // namespace

void prune_checkpoints(io::Storage& storage, const fs::path& output_dir, std::int64_t limit,
                       const fs::path& newest, const fs::path& best) {
  try {
    std::vector<Candidate> candidates = list_checkpoints(output_dir);
    auto excess = static_cast<std::int64_t>(candidates.size()) - limit;
    for (const Candidate& c : candidates) {
      const fs::path name = c.dir.filename();
      if (excess <= 0) break;
      if (name == newest.filename() || name == best.filename()) continue;
      remove_aside(storage, c.dir);
      --excess;
    }
  } catch (const std::exception& e) {
    log::warn("old checkpoints in '{}' could not be removed: {}", output_dir.string(), e.what());
  }
}

Unfinished classify(const std::string& name) {
  using What = Unfinished::What;
  static const std::string replaced = io::CommitDir::replaced_path("").filename().string();
  static const std::string unfinished = io::CommitDir::temp_path("").filename().string();
  if (name.starts_with(kPruned)) {
    const std::string rest = name.substr(kPruned.size());
    return {step_of(rest) || classify(rest).what != What::none ? What::removal : What::none, {}};
  }
  if (name.starts_with(replaced)) {
    const std::string target = name.substr(replaced.size());
    return step_of(target) ? Unfinished{What::replaced, target} : Unfinished{};
  }
  if (!name.starts_with(unfinished)) return {};
  // "checkpoint-<step>", or "checkpoint-<step>-<rank>" on a disk that rank 0 does not see.
  const std::string rest = name.substr(unfinished.size());
  const auto dash = rest.find('-', directory_name(0).size());
  const bool rank = dash != rest.npos && dash + 1 < rest.size() &&
                    rest.find_first_not_of("0123456789", dash + 1) == rest.npos;
  return {step_of(rank ? rest.substr(0, dash) : rest) ? What::save : What::none, {}};
}

void remove_stale(io::Storage& storage, const fs::path& output_dir) {
  for (const std::string& name : storage.list(output_dir)) {
    const auto what = classify(name).what;
    if (what != Unfinished::What::save && what != Unfinished::What::removal) continue;
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

}  // namespace qft::checkpoint

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
      // Out of sight first: a removal that is cut off must not leave half a checkpoint under its name.
      const fs::path aside = output_dir / (kPruned + name.string());
      storage.rename(c.dir, aside);
      storage.sync_directory(output_dir);
      io::remove_tree(storage, aside);
      --excess;
    }
  } catch (const std::exception& e) {
    log::warn("old checkpoints in '{}' could not be removed: {}", output_dir.string(), e.what());
  }
}

void remove_stale(io::Storage& storage, const fs::path& output_dir) {
  const std::string unfinished = io::CommitDir::temp_path(directory_name(0)).filename().string();
  const std::string prefix = unfinished.substr(0, unfinished.size() - 1);
  for (const std::string& name : storage.list(output_dir))
    if (name.starts_with(prefix) || name.starts_with(kPruned)) {
      log::info("removing '{}', which an earlier run left unfinished", (output_dir / name).string());
      io::remove_tree(storage, output_dir / name);
    }
}

}  // namespace qft::checkpoint

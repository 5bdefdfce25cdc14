#include "qft/comm/exchange.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "preflight_parts.h"
#include <fmt/format.h>

namespace qft::job {

namespace {

namespace fs = std::filesystem;

std::vector<int> ranks_where(const std::vector<std::string>& texts, const std::string& value) {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    if (texts[r] == value) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

// The folder itself, or the nearest one above it that exists: where it would be created.
fs::path existing_folder(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error);
  while (!fs::is_directory(path, error) && path.has_relative_path()) path = path.parent_path();
  return path;
}

std::string state_of(const NeededPath& needed) {
  std::error_code error;
  if (needed.use == NeededPath::Use::write) {
    const auto folder = existing_folder(needed.path);
    // Permission bits do not tell about quotas, read-only mounts and squashed users: a file does.
    const auto file = folder / fmt::format(".qft-check-own-{}", getpid());
    std::ofstream stream(file);
    const bool written = static_cast<bool>(stream << "mine" << std::flush);
    fs::remove(file, error);
    return written ? "" : fmt::format("cannot be written: a file could not be made in {}", folder.string());
  }
  if (!fs::exists(needed.path, error)) return "does not exist";
  const int mode = fs::is_directory(needed.path, error) ? R_OK | X_OK : R_OK;
  return access(needed.path.c_str(), mode) == 0 ? "" : "is not readable";
}

// True where the other ranks see what rank 0 writes next to `path`.
std::vector<int> who_sees_rank_zeros_file(comm::Session& session, const fs::path& path) {
  const auto name = comm::on_root(session.world(), [&] {
    const auto file = existing_folder(path) / fmt::format(".qft-check-{}", getpid());
    std::ofstream(file) << "seen?";
    return file.string();
  });
  const auto here = existing_folder(path) / fs::path(name).filename();
  std::error_code error;
  const auto sees = comm::all_gather_value(session.world(), fs::exists(here, error) ? 1 : 0);
  if (session.rank() == 0) fs::remove(name, error);
  return sees;
}

void check_sharing(comm::Session& session, const NeededPath& needed, std::vector<Finding>& findings) {
  const auto sees = who_sees_rank_zeros_file(session, needed.path);
  const auto blind = std::count(sees.begin(), sees.end(), 0);
  const auto text = blind == 0 ? fmt::format("{} is shared by all ranks", needed.path.string())
                               : fmt::format("{} is private to each node: {} of {} ranks do not see rank 0's files",
                                             needed.path.string(), blind, sees.size());
  const auto advice = blind == 0 ? ""
                                 : "checkpoints are written per node; to resume on other nodes copy them, or "
                                   "use a shared file system";
  findings.push_back({blind == 0 ? Finding::Level::fine : Finding::Level::note, needed.key, text, advice});
}

}  // namespace

void check_paths(comm::Session& session, const std::vector<NeededPath>& paths, std::vector<Finding>& findings) {
  for (const auto& needed : paths) {
    auto states = comm::all_gather_strings(session.world(), state_of(needed));
    auto kinds = states;
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
    const bool fine = kinds.size() == 1 && kinds[0].empty();
    for (const auto& kind : kinds) {
      if (kind.empty()) continue;
      const auto ranks = ranks_where(states, kind);
      const auto where = ranks.size() == states.size()
                             ? std::string("on all ranks")
                             : fmt::format("on rank{} {}", ranks.size() > 1 ? "s" : "", comm::format_ranks(ranks));
      findings.push_back({Finding::Level::problem, needed.key, fmt::format("{} {} {}", needed.path.string(), kind, where),
                          needed.use == NeededPath::Use::read
                              ? "put it on a shared file system or copy it to every node, and check the key in the run file"
                              : "choose a folder that every node can write"});
    }
    if (!fine) continue;
    if (needed.use == NeededPath::Use::write) {
      check_sharing(session, needed, findings);
    } else {
      findings.push_back(
          {Finding::Level::fine, needed.key, fmt::format("{} is readable on all ranks", needed.path.string()), ""});
    }
  }
}

}  // namespace qft::job

// Cleans an output directory: removes leftovers of unfinished saves and removals, and checkpoints beyond a limit.
#pragma once

#include "qft/io/storage.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace qft::checkpoint {

struct GcOptions {
  /// Number of verified checkpoints to keep, the newest ones; nullopt: all.
  std::optional<std::int64_t> keep;
  /// Files changed more recently than this may belong to a run that is saving, and are kept.
  std::chrono::seconds least_age = std::chrono::minutes(15);
};

/// The decision about one name of the directory, with the reason.
struct GcEntry {
  std::filesystem::path path;
  bool remove = false;
  std::string reason;
  std::uint64_t bytes = 0;  // sum over all files below it
};

/// Returns one entry for each name that qft gives to checkpoints and to their unfinished and outgoing forms; other names are
/// ignored. With `keep`, verifies checkpoints in the order of rank_checkpoints() (branch.h) until `keep` of them are good; each
/// later one is removed if it is ours and no trainer state names it as the best. A checkpoint that fails to verify is never
/// counted and never removed. Links are not followed and stay. Changes nothing on disk. Throws Error if `output_dir` is not a
/// directory, ConfigError if `keep` is below 1.
std::vector<GcEntry> plan_gc(const std::filesystem::path& output_dir, const GcOptions& options);

/// Removes the entries with `remove` set; returns the removed bytes. Renames a checkpoint before the removal, so that half a
/// checkpoint is never found under its name.
std::uint64_t run_gc(io::Storage& storage, const std::vector<GcEntry>& plan);

}  // namespace qft::checkpoint

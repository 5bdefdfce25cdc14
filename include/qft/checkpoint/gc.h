// Clearing an output directory: what saves and removals left unfinished, and checkpoints beyond a limit.
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
  /// Verified checkpoints to keep, the newest ones; nothing: all.
  std::optional<std::int64_t> keep;
  /// What was changed later than this ago may belong to a run that is saving, and stays.
  std::chrono::seconds least_age = std::chrono::minutes(15);
};

/// What is to be done with one name of the directory, and why.
struct GcEntry {
  std::filesystem::path path;
  bool remove = false;
  std::string reason;
  std::uint64_t bytes = 0;  // of all files under it
};

/// One entry for each name that qft gives to checkpoints and to their unfinished and outgoing forms; no other
/// names. With `keep`, checkpoints are read and verified in the order of survey() (branch.h) until so many are good; one that
/// comes later goes if it is ours and no trainer state calls it the best. What does not verify
/// is never counted and never removed. Links are not followed and stay. Changes nothing. Throws Error where
/// `output_dir` is no directory, ConfigError where `keep` is below 1.
std::vector<GcEntry> plan_gc(const std::filesystem::path& output_dir, const GcOptions& options);

/// Removes the entries that are to be removed; returns the bytes. A checkpoint leaves its name first, so that
/// half of one is never found under it.
std::uint64_t run_gc(io::Storage& storage, const std::vector<GcEntry>& plan);

}  // namespace qft::checkpoint

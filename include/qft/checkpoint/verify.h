// Checks the integrity of a checkpoint, adapter or model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qft::checkpoint {

struct VerifyReport {
  bool has_manifest = false;
  std::vector<std::string> errors;                  // damage: do not use the directory
  std::vector<std::string> warnings;                // files that no manifest lists, checks that were not possible
  std::uint64_t files = 0, bytes = 0, tensors = 0;  // numbers of checked objects
  /// A tensor with NaN or infinite values, left by a run that diverged; each is a warning too.
  struct NotFinite {
    std::string tensor;
    std::uint64_t nan = 0, infinite = 0;
  };
  std::vector<NotFinite> not_finite;

  bool ok() const { return errors.empty(); }
};

/// With a manifest, checks its checksum and invariants, the size and checksum of every file, and that the safetensors files hold
/// the ranges in the manifest. Without one (PEFT adapters, Hugging Face models), checks the headers of all safetensors files, the
/// index against the shards, and JSON files. Faults inside `dir` are reported, not thrown; throws Error if `dir` is not a
/// directory.
VerifyReport verify(const std::filesystem::path& dir);

/// Adds the tensors with NaN or infinite values to an error-free report of `dir`. Reads all tensors, one piece in memory at a
/// time. These values were written so; therefore they are warnings, not errors.
void find_non_finite(const std::filesystem::path& dir, VerifyReport& report);

/// Like verify(), but requires a manifest and checksums only this rank's share of the files (distributed by size). All parts
/// together do the work of verify().
VerifyReport verify_share(const std::filesystem::path& dir, int part, int parts);

/// Checks only that the manifest is present and valid, and that its files exist with the listed sizes.
VerifyReport verify_manifest(const std::filesystem::path& dir);

/// Warns that `dir` is skipped, with the reason.
void log_skipped(const std::filesystem::path& dir, const VerifyReport& report);

}  // namespace qft::checkpoint

// Checks whether a checkpoint, an adapter or a model directory is intact.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace qft::checkpoint {

struct VerifyReport {
  bool has_manifest = false;
  std::vector<std::string> errors;                  // damage: do not use the directory
  std::vector<std::string> warnings;                // worth knowing: files that no manifest lists, checks that were not possible
  std::uint64_t files = 0, bytes = 0, tensors = 0;  // looked at
  /// Tensors with values that are no numbers, as a run that went wrong leaves them; each is a warning too.
  struct NotFinite {
    std::string tensor;
    std::uint64_t nan = 0, infinite = 0;
  };
  std::vector<NotFinite> not_finite;

  bool ok() const { return errors.empty(); }
};

/// With a manifest: the manifest's own checksum and invariants, size and checksum of every file, and that
/// every safetensors file holds the ranges that the manifest promises. Without one (PEFT adapters, Hugging
/// Face models): headers of all safetensors files, index against shards, JSON files. Never throws for what it
/// finds inside `dir`; throws Error where `dir` is no directory.
VerifyReport verify(const std::filesystem::path& dir);

/// Adds to a report of `dir` without errors the tensors with NaN or infinite values: all of them are read, a piece in memory
/// at a time. They are as they were written, so that they are no errors.
void find_not_finite(const std::filesystem::path& dir, VerifyReport& report);

/// The same with a manifest required, but of the files' checksums only this rank's share (files are dealt out
/// by size): the union over all parts is verify().
VerifyReport verify_share(const std::filesystem::path& dir, int part, int parts);

/// The manifest alone: present, sound, and its files there with the sizes that it says.
VerifyReport verify_manifest(const std::filesystem::path& dir);

}  // namespace qft::checkpoint

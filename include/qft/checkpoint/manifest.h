// The manifest of a checkpoint directory: the size and checksum of every file, and the location of every element of every tensor.
// It is written last; a directory is a checkpoint if its manifest verifies.
#pragma once

#include "qft/core/box.h"
#include "qft/core/dtype.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

inline constexpr const char* kManifestFile = "manifest.json";
/// Version 2 has boxes; version 1 has whole tensors only.
inline constexpr int kManifestVersion = 2, kOldestManifestVersion = 1;
inline constexpr const char* kManifestFormat = "qft checkpoint";
/// The "format" metadata of the safetensors files that hold slices.
inline constexpr const char* kShardFormat = "qft";
/// Prefix of the names of these files.
inline constexpr const char* kStateStem = "qft_state";

/// A file of the directory (a plain name), its size and its XXH3-128.
struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string checksum;
};

/// Elements [begin, end) of a flattened box. They are the whole content of tensor `entry` in the safetensors file `file`.
struct RangeRecord {
  std::uint64_t begin = 0, end = 0;
  std::string file, entry;
};

/// A box of a tensor that ranks computed with, and the locations of its elements.
struct BoxRecord {
  Box box;
  std::vector<RangeRecord> ranges;  // ascending
};
/// Limit of the number of boxes of a tensor: beyond any mesh of ranks.
inline constexpr std::size_t kMaxBoxes = 1024;

struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;                   // global
  std::vector<BoxRecord> boxes;  // ascending; a single box, the whole tensor, unless ranks computed with parts

  std::uint64_t elements() const;
  /// Appends a range of a box; call in ascending order.
  void add(const Box& box, RangeRecord range);
};

/// The checkpoint from which a branch began.
struct BranchPoint {
  std::string run;  // id of the run that wrote it; empty if its manifest has no id
  std::int64_t step = 0;
  std::string checksum;  // its manifest's checksum
  std::string path;      // absolute
};

/// The run that wrote a checkpoint (rules in branch.h). All fields are empty for manifests from before run ids existed.
struct RunRecord {
  std::string id;                     // 128 random bits in hex
  std::int64_t number = 0;            // 1 + the highest number in the output directory when the run began
  std::optional<BranchPoint> parent;  // nullopt for a fresh start
};

struct Manifest {
  std::int64_t step = 0;
  int world_size = 1;  // ranks that wrote the checkpoint
  std::string qft_version;
  /// The trainer's data for resuming: configuration, data position, global batch, random numbers.
  nlohmann::json state = nlohmann::json::object();
  std::vector<FileRecord> files;      // sorted by name; without the manifest itself
  std::vector<TensorRecord> tensors;  // sorted by name
  RunRecord run;
  std::string checksum;  // of the parsed text

  /// Returns JSON with a checksum over its own content. It holds no time: equal runs write equal bytes, except for the run's id.
  std::string to_text() const;
  /// Throws Error on damaged JSON, a wrong checksum, an unknown version, or a broken invariant (see check()).
  static Manifest parse(std::string_view text);
  /// Reads and parses the manifest of `dir`; errors name the path.
  static Manifest read(const std::filesystem::path& dir);

  /// Throws Error unless file names are plain and unique, the boxes of each tensor cover it exactly once, the ranges of each box
  /// cover it exactly once, and all ranges lie in listed files. The message names the tensor and the elements.
  void check() const;

  const TensorRecord* find(std::string_view name) const;
  const FileRecord* find_file(std::string_view name) const;
};

}  // namespace qft::checkpoint

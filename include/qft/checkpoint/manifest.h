// The manifest of a checkpoint directory: what every file must be and where every element of every tensor
// lies. It is written last; a directory is a checkpoint if its manifest verifies.
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
/// 2 has boxes; what 1 holds are whole tensors.
inline constexpr int kManifestVersion = 2, kOldestManifestVersion = 1;
inline constexpr const char* kManifestFormat = "qft checkpoint";
/// The "format" metadata of the safetensors files that hold slices.
inline constexpr const char* kShardFormat = "qft";
/// How the names of those files begin.
inline constexpr const char* kStateStem = "qft_state";

/// A file of the directory (a plain name), its size and its XXH3-128.
struct FileRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string checksum;
};

/// Elements [begin, end) of a flattened box are the whole of the tensor `entry` in the safetensors file `file`.
struct RangeRecord {
  std::uint64_t begin = 0, end = 0;
  std::string file, entry;
};

/// A part of a tensor with which ranks computed, and where its elements are.
struct BoxRecord {
  Box box;
  std::vector<RangeRecord> ranges;  // ascending
};
/// Boxes of a tensor at most: beyond any mesh of ranks.
inline constexpr std::size_t kMaxBoxes = 1024;

struct TensorRecord {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;                   // global
  std::vector<BoxRecord> boxes;  // ascending; one, the whole, unless ranks computed with parts

  std::uint64_t elements() const;
  /// Adds a range of a box, in order.
  void add(const Box& box, RangeRecord range);
};

/// The checkpoint from which a branch began.
struct BranchPoint {
  std::string run;  // id of the run that wrote it; empty where its manifest names none
  std::int64_t step = 0;
  std::string checksum;  // of its manifest
  std::string path;      // absolute
};

/// The run that wrote a checkpoint (rules in branch.h). All empty in manifests that were written before there were ids.
struct RunRecord {
  std::string id;                     // 128 random bits in hex
  std::int64_t number = 0;            // 1 + the greatest in the output directory when it began
  std::optional<BranchPoint> parent;  // nothing for a fresh start
};

struct Manifest {
  std::int64_t step = 0;
  int world_size = 1;  // ranks that wrote it
  std::string qft_version;
  /// Whatever the trainer needs to go on: configuration, data position, global batch, random numbers.
  nlohmann::json state = nlohmann::json::object();
  std::vector<FileRecord> files;      // sorted by name; without the manifest itself
  std::vector<TensorRecord> tensors;  // sorted by name
  RunRecord run;
  std::string checksum;  // of what was parsed

  /// JSON with a checksum over its own content. Holds no time: equal runs write equal bytes, but for the run's id.
  std::string to_text() const;
  /// Throws Error on damaged JSON, a wrong checksum, an unknown version, or a broken invariant (see check()).
  static Manifest parse(std::string_view text);
  /// Reads and parses; errors name the path.
  static Manifest read(const std::filesystem::path& dir);

  /// Throws Error unless file names are plain and unique, the boxes of each tensor cover it exactly once, their ranges cover them
  /// exactly once, and all lie in listed files. The message names the tensor and the elements.
  void check() const;

  const TensorRecord* find(std::string_view name) const;
  const FileRecord* find_file(std::string_view name) const;
};

}  // namespace qft::checkpoint

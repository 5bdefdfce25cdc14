// Reads checkpoints without a communicator: one directory, or the newest good one of an output directory.
#pragma once

#include "qft/checkpoint/manifest.h"
#include "qft/io/safetensors.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// The slice of a tensor of global `shape` that a rank holds: elements [begin, end) of the flattened box.
struct TensorSlice {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Box box;
  std::uint64_t begin = 0, end = 0;

  std::uint64_t bytes() const { return (end - begin) * size_of(dtype); }
};
/// Divides a range of a tensor's boxes into slices, one for each box with elements in the range, in order. `shape`: of the whole
/// tensor.
std::vector<TensorSlice> slices_in_boxes(const std::string& name, DType dtype, const Shape& shape, const BoxesRange& range);

/// A slice in host memory, to save or to fill; the caller owns the memory.
struct HostSlice : TensorSlice {
  void* data = nullptr;
};

/// An open checkpoint. The manifest is checked on opening, a file on its first use. Thread-safe.
class Checkpoint {
 public:
  /// Throws Error with the directory if the manifest is missing or damaged.
  static Checkpoint open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }

  /// Copies elements [begin, end) of the whole flattened tensor from the files that hold them. Throws Error if the tensor is
  /// missing, the range exceeds it, or a file does not match the manifest.
  void read_tensor_range(std::string_view name, std::uint64_t begin, std::uint64_t end, void* dst) const;
  /// Fills a slice, whichever slices were saved, after a check of dtype and shape against the checkpoint.
  void read(const HostSlice& target) const;

 private:
  Checkpoint() = default;
  const TensorRecord& require_tensor(std::string_view name) const;
  void copy(const TensorRecord& tensor, const BoxRange& wanted, void* dst) const;
  const io::SafetensorsFile& file(const std::string& name) const;

  struct Files {
    std::mutex mutex;
    std::map<std::string, io::SafetensorsFile> open;
  };
  std::filesystem::path dir_;
  Manifest manifest_;
  std::unique_ptr<Files> files_;
};

/// Returns "checkpoint-<step>".
std::string directory_name(std::int64_t step);
/// Returns the step in such a name; nullopt for any other name.
std::optional<std::int64_t> step_of(std::string_view name);

struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path dir;
};
/// Returns the checkpoint-<step> directories of `output_dir`, oldest first, from any program. Empty if the directory does not
/// exist.
std::vector<Candidate> list_checkpoints(const std::filesystem::path& output_dir);

/// Throws ConfigError unless `dir` is a qft checkpoint, intact or damaged. If `dir` is an output_dir, the message names one of
/// its checkpoints.
void require_checkpoint(const std::filesystem::path& dir);

/// Returns the first of resume_order() (branch.h) that verifies with its manifest and every file. Damaged ones are skipped and
/// logged with name and reason.
std::optional<std::filesystem::path> find_latest_verified(const std::filesystem::path& output_dir);

}  // namespace qft::checkpoint

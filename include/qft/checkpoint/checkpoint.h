// Reading checkpoints without a communicator: one directory, or the newest good one of an output directory.
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

/// What a rank holds of a tensor of global `shape`: elements [begin, end) of a box of it.
struct TensorSlice {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  Box box;
  std::uint64_t begin = 0, end = 0;

  std::uint64_t bytes() const { return (end - begin) * size_of(dtype); }
};
/// A slice in host memory, to be saved or to be filled; the memory is the caller's.
struct HostSlice : TensorSlice {
  void* data = nullptr;
};

/// An open checkpoint. Its manifest is checked when opened, its files when first touched. Thread-safe.
class Checkpoint {
 public:
  /// Throws Error naming the directory where there is no manifest or a damaged one.
  static Checkpoint open(const std::filesystem::path& dir);

  const std::filesystem::path& dir() const { return dir_; }
  const Manifest& manifest() const { return manifest_; }
  const nlohmann::json& state() const { return manifest_.state; }

  /// Copies elements [begin, end) of the whole flattened tensor, from whatever files hold them. Throws Error where the tensor is
  /// missing, the range is outside it, or a file is not what the manifest says.
  void read_tensor_range(std::string_view name, std::uint64_t begin, std::uint64_t end, void* dst) const;
  /// Fills a slice, whatever slices were saved, after checking dtype and shape against the checkpoint's.
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

/// "checkpoint-<step>".
std::string directory_name(std::int64_t step);
/// The step of such a name; nothing for any other.
std::optional<std::int64_t> step_of(std::string_view name);

struct Candidate {
  std::int64_t step = 0;
  std::filesystem::path dir;
};
/// The checkpoint-<step> directories of `output_dir`, oldest first, whoever wrote them. None where the directory does not exist.
std::vector<Candidate> list_checkpoints(const std::filesystem::path& output_dir);

/// Throws ConfigError unless `dir` is a checkpoint of qft, whole or damaged; it names one where `dir` is an output_dir.
void require_checkpoint(const std::filesystem::path& dir);

/// The first of resume_order() (branch.h) whose manifest and every file verify. Broken ones are logged by
/// name, with the reason, and skipped.
std::optional<std::filesystem::path> find_latest_verified(const std::filesystem::path& output_dir);

}  // namespace qft::checkpoint

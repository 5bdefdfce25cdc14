// The slices of tensors in the files of their owner ranks, and the tensors of a directory by name, whichever program wrote it,
// for tools that compare and check. Private to checkpoint.
#pragma once

#include "qft/checkpoint/checkpoint.h"
#include "qft/io/tensor_file.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace qft::checkpoint {

/// A checkpoint's training state, however many files hold its ranges, together with the tensors of its other weight files: an
/// adapter, or a model and its shards. A single file of tensors is a source too.
class TensorSource {
 public:
  /// Throws Error if `path` is none of these or holds no tensors, or if a file or manifest is damaged.
  static TensorSource open(const std::filesystem::path& path);

  struct Tensor {
    DType dtype = DType::f32;
    std::vector<std::int64_t> shape;
    std::uint64_t elements = 0;
    const io::TensorFile* file = nullptr;  // null: read through the manifest
    const io::TensorEntry* entry = nullptr;
  };
  /// Sorted by name.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

  /// Reads elements [begin, end) of the flattened tensor.
  void read(const std::string& name, std::uint64_t begin, std::uint64_t end, void* dst) const;

  /// Returns the manifest; null if there is none.
  const Manifest* manifest() const { return checkpoint_ ? &checkpoint_->manifest() : nullptr; }
  const std::filesystem::path& dir() const { return dir_; }

 private:
  std::filesystem::path dir_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<std::unique_ptr<io::TensorFile>> files_;
  std::map<std::string, Tensor> tensors_;
};

/// Number of a tensor's elements in memory at once.
inline constexpr std::uint64_t kPieceElements = 1 << 20;

/// Calls body(begin, end) for consecutive pieces that cover [0, elements).
void for_each_piece(std::uint64_t elements, const std::function<void(std::uint64_t, std::uint64_t)>& body);

/// Returns "<stem>-<rank>-of-<ranks>.safetensors".
std::string slice_file_name(const std::string& stem, int rank, int ranks);

/// Returns the names of the files that hold slices; a checkpoint's other files are independent of the ranks.
std::set<std::string> files_with_slices(const Manifest& manifest);

/// Throws Error unless the slice's box is inside its tensor, and its range inside the box.
void require_inside(const TensorSlice& slice);

/// Returns the file's entry that holds the range; throws Error unless it matches the manifest.
const io::TensorEntry& require_entry(const io::SafetensorsFile& file, const TensorRecord& tensor, const RangeRecord& range);

/// One slice in two forms: as the manifest records it, and as `file` holds it (a whole box keeps its shape, a part is flat).
struct SliceRecord {
  TensorRecord tensor;  // with only this range
  io::TensorSpec entry;
};
/// Throws like require_inside().
SliceRecord record_slice(const TensorSlice& slice, const std::string& file);

}  // namespace qft::checkpoint

// Files of torch.save() (.bin, .pt), since torch 1.6: a zip archive with a pickle that says which tensors there are, and
// their bytes as stored records. The pickle is read, not run: it may make dicts, lists and tensors, and nothing else.
// Format: torch/serialization.py and caffe2/serialize/inline_container.h.
#pragma once

#include "qft/io/tensor_file.h"

#include <filesystem>
#include <vector>

namespace qft::io {

/// An open file of torch.save(). Its top level is a dict; tensors of dicts and lists in it have names joined by dots
/// ("model.weight"), and what is neither (numbers, texts) is left out. Tensors may share their bytes, and need not lie
/// row-major in the file: read() gathers them.
class TorchFile : public TensorFile {
 public:
  /// Reads and checks the zip's directory and the pickle (at most 64 MB). Throws Error naming the file and the fault: a
  /// pickle that asks for any other function or class is refused by that name, with what to do; so are compressed
  /// records, big-endian data, files of older versions of torch and tensors that leave their storage.
  static TorchFile open(const std::filesystem::path& path);

 private:
  using TensorFile::TensorFile;
  void read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const override;

  std::vector<std::vector<std::int64_t>> strides_;  // in elements, of each entry; empty: row-major
};

}  // namespace qft::io

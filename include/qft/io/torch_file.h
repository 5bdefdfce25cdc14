// Files of torch.save() (.bin, .pt) since torch 1.6: a zip archive with a pickle that describes the tensors, and their bytes as
// uncompressed records. The pickle is read, not run: it may make dicts, lists and tensors, nothing else.
// Format: torch/serialization.py and caffe2/serialize/inline_container.h.
#pragma once

#include "qft/io/tensor_file.h"

#include <filesystem>
#include <vector>

namespace qft::io {

/// An open file of torch.save(). Its top level is a dict. Tensors in nested dicts and lists get names joined by dots
/// ("model.weight"); numbers and texts are left out. Tensors may share their bytes and need not be row-major in the file: read()
/// gathers their elements.
class TorchFile : public TensorFile {
 public:
  /// Reads and checks the zip's directory and the pickle (at most 64 MB). Throws Error with the file and the fault. A pickle that
  /// asks for any other function or class is rejected with that name and a remedy. Also rejects compressed records, big-endian
  /// data, files of torch before 1.6, and tensors that exceed their storage.
  static TorchFile open(const std::filesystem::path& path);

 private:
  using TensorFile::TensorFile;
  void read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const override;

  std::vector<std::vector<std::int64_t>> strides_;  // in elements, one vector per entry; empty: row-major
};

}  // namespace qft::io

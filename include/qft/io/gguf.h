// Writes GGUF files, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata, a table of tensors,
// their bytes. Little-endian, like all supported hosts.
#pragma once

#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace qft::io {

/// ggml's numbers for element types.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q8_0 = 8,  ///< blocks of 32 numbers: their largest magnitude / 127 as fp16, then 8-bit codes
  bf16 = 30
};
inline constexpr std::int64_t kQ8Block = 32;
/// Returns for example "F32", "Q8_0".
std::string_view name_of(GgufType type);
std::uint64_t bytes_of(GgufType type, std::uint64_t elements);

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<std::int32_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::int64_t> shape;  ///< row-major, as everywhere in qft; the file stores the dimensions in reverse

  std::uint64_t bytes() const;
};

/// Converts values [count] to `type`: bytes_of(type, count) bytes. q8_0 rounds like ggml's reference, ties away from zero.
void to_gguf(GgufType type, const float* values, std::uint64_t count, char* to);

/// Writes one file, front to back, without holding it in memory.
class GgufWriter {
 public:
  /// Writes everything except the tensors' bytes. Throws Error if a name appears twice, or if q8_0 blocks do not divide a
  /// tensor's columns.
  GgufWriter(Storage& storage, const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors);
  /// Writes the next bytes of the tensors in the given order; one call must not cross the end of a tensor.
  void append(const void* data, std::uint64_t bytes);
  /// Throws Error unless all bytes were given; syncs and closes.
  void finish();

 private:
  void pad();

  std::filesystem::path path_;
  std::unique_ptr<WritableFile> file_;
  std::vector<GgufTensor> tensors_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0, in_tensor_ = 0;  ///< bytes written to the file, and to the current tensor
};

}  // namespace qft::io

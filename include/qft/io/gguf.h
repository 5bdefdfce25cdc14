// Writing of GGUF files, version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md): metadata, a table of tensors,
// their bytes. Little-endian, as all hosts are.
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

/// ggml's numbers of element types.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q8_0 = 8,  ///< blocks of 32 numbers: their largest magnitude / 127 as fp16, then codes of 8 bits
  bf16 = 30
};
inline constexpr std::int64_t kQ8Block = 32;
/// "F32", "Q8_0".
std::string_view name_of(GgufType type);
std::uint64_t bytes_of(GgufType type, std::uint64_t elements);

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::string>, std::vector<std::int32_t>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  std::vector<std::int64_t> shape;  ///< row-major, as everywhere here: the file has its dimensions the other way round

  std::uint64_t bytes() const;
};

/// Values [count] as `type`, bytes_of(type, count) of them; of q8_0 rounded as ggml's reference does, ties away from zero.
void to_gguf(GgufType type, const float* values, std::uint64_t count, char* to);

/// Writes one file, front to back, without holding it in memory.
class GgufWriter {
 public:
  /// Writes all but the tensors' bytes. Throws Error on a name that is given twice.
  GgufWriter(Storage& storage, const std::filesystem::path& path, const GgufMetadata& metadata, std::vector<GgufTensor> tensors);
  /// The next bytes of the tensors in the order given; none may reach beyond the end of its tensor.
  void append(const void* data, std::uint64_t bytes);
  /// Checks that all bytes came, syncs and closes.
  void finish();

 private:
  void pad();

  std::filesystem::path path_;
  std::unique_ptr<WritableFile> file_;
  std::vector<GgufTensor> tensors_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0, in_tensor_ = 0;  ///< bytes of the file, and of the current tensor
};

}  // namespace qft::io

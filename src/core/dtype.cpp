#include "qft/core/dtype.h"

#include "qft/core/error.h"

#include <array>

namespace qft {
namespace {

struct Row {
  DType dtype;
  std::size_t bytes;
  std::string_view name;
};
constexpr std::array<Row, 10> kTable{{{DType::f64, 8, "F64"},
                                      {DType::f32, 4, "F32"},
                                      {DType::f16, 2, "F16"},
                                      {DType::bf16, 2, "BF16"},
                                      {DType::i64, 8, "I64"},
                                      {DType::i32, 4, "I32"},
                                      {DType::i16, 2, "I16"},
                                      {DType::i8, 1, "I8"},
                                      {DType::u8, 1, "U8"},
                                      {DType::boolean, 1, "BOOL"}}};

const Row& row(DType dtype) {
  return kTable[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::size_t size_of(DType dtype) {
  return row(dtype).bytes;
}

std::string_view safetensors_name(DType dtype) {
  return row(dtype).name;
}

DType dtype_from_safetensors(std::string_view name) {
  for (const Row& r : kTable)
    if (r.name == name) return r.dtype;
  fail("dtype '{}' is not supported: convert the tensor to F32, BF16 or F16", name);
}

}  // namespace qft

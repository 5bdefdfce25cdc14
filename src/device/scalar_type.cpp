#include "qft/device/scalar_type.h"

#include "qft/core/error.h"

#include <array>
#include <utility>

#include <c10/util/typeid.h>

namespace qft::device {
namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, 10> kTypes{{{at::kDouble, DType::f64},
                                                                   {at::kFloat, DType::f32},
                                                                   {at::kHalf, DType::f16},
                                                                   {at::kBFloat16, DType::bf16},
                                                                   {at::kLong, DType::i64},
                                                                   {at::kInt, DType::i32},
                                                                   {at::kShort, DType::i16},
                                                                   {at::kChar, DType::i8},
                                                                   {at::kByte, DType::u8},
                                                                   {at::kBool, DType::boolean}}};

}  // namespace

DType dtype_of(at::ScalarType type) {
  for (const auto& [scalar, dtype] : kTypes)
    if (scalar == type) return dtype;
  fail("element type {} has no file representation", c10::toString(type));
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [scalar, own] : kTypes)
    if (own == dtype) return scalar;
  fail("element type {} is unknown to LibTorch", safetensors_name(dtype));
}

}  // namespace qft::device

#include "qft/core/convert.h"

#include "qft/core/error.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace qft {
namespace {

struct FloatingName {
  DType type;
  std::string_view torch, brief;
};
constexpr FloatingName kFloatingNames[] = {{DType::f64, "float64", "fp64"},
                                           {DType::f32, "float32", "fp32"},
                                           {DType::f16, "float16", "fp16"},
                                           {DType::bf16, "bfloat16", "bf16"}};

const FloatingName& name_of(DType dtype) {
  for (const FloatingName& name : kFloatingNames)
    if (name.type == dtype) return name;
  fail("element type {} is not a floating-point type", safetensors_name(dtype));
}

/// The bits of a bfloat16: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;

  Bf16() = default;
  explicit Bf16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    // Keep the NaN quiet: a payload in the lower half alone would round to an infinity.
    bits = std::isnan(value) ? static_cast<std::uint16_t>(word >> 16 | 0x40)
                             : static_cast<std::uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};

/// The bits of an IEEE half, because not every compiler has a type for it.
struct Half {
  std::uint16_t bits;

  Half() = default;
  explicit Half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(word >> 16 & 0x8000);
    const std::uint32_t size = word & 0x7FFFFFFF;
    std::uint32_t rest = 0;
    if (size > 0x7F800000) {
      rest = 0x7E00;
    } else if (size >= std::bit_cast<std::uint32_t>(65520.0F)) {
      rest = 0x7C00;
    } else if (size < std::bit_cast<std::uint32_t>(0x1p-14F)) {
      // Next to 0.5 a float's last digit equals a subnormal half's last digit, so the addition rounds correctly.
      rest = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    } else {
      rest = (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | rest);
  }
  explicit operator float() const {
    const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = bits >> 10 & 0x1F, fraction = bits & 0x3FF;
    if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F));
    return std::bit_cast<float>(sign | (exponent == 31 ? 0x7F800000 : (exponent + 112) << 23) | fraction << 13);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};

template <class From, class To>
void copy(const void* src, std::size_t count, void* dst) {
  const auto* from = static_cast<const char*>(src);
  auto* to = static_cast<char*>(dst);
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    const To result = static_cast<To>(value);
    std::memcpy(to + i * sizeof(To), &result, sizeof(To));
  }
}

/// Calls f with a value of the C++ type for `dtype`.
template <class F>
void with_floating(DType dtype, F f) {
  switch (dtype) {
    case DType::f64:
      return f(double());
    case DType::f32:
      return f(float());
    case DType::f16:
      return f(Half());
    case DType::bf16:
      return f(Bf16());
    default:
      fail("element type {} is not a floating-point type", safetensors_name(dtype));
  }
}

template <class F>
void with_any(DType dtype, F f) {
  switch (dtype) {
    case DType::i64:
      return f(std::int64_t());
    case DType::i32:
      return f(std::int32_t());
    case DType::i16:
      return f(std::int16_t());
    case DType::i8:
      return f(std::int8_t());
    case DType::u8:
    case DType::boolean:
      return f(std::uint8_t());
    default:
      return with_floating(dtype, f);
  }
}

}  // namespace

std::string_view torch_name(DType dtype) {
  return name_of(dtype).torch;
}

std::string_view short_name(DType dtype) {
  return name_of(dtype).brief;
}

std::optional<DType> dtype_from_torch(std::string_view word) {
  for (const FloatingName& name : kFloatingNames)
    if (name.torch == word) return name.type;
  return std::nullopt;
}

bool is_floating(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

void to_double(DType dtype, const void* src, std::size_t count, double* dst) {
  with_any(dtype, [&]<class T>(T) { copy<T, double>(src, count, dst); });
}

void to_float(DType dtype, const void* src, std::size_t count, float* dst) {
  with_floating(dtype, [&]<class T>(T) { copy<T, float>(src, count, dst); });
}

void from_float(DType dtype, const float* src, std::size_t count, void* dst) {
  with_floating(dtype, [&]<class T>(T) { copy<float, T>(src, count, dst); });
}

}  // namespace qft

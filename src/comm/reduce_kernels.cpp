#include "reduce_kernels.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace qft::comm {
namespace {

template <class Wide, class Narrow>
void combine_as(Wide* accumulated, const Narrow* own, std::size_t count, ReduceOp op) {
  const auto each = [&](auto combined) {
    for (std::size_t i = 0; i < count; ++i)
      accumulated[i] = static_cast<Wide>(combined(accumulated[i], static_cast<Wide>(own[i])));
  };
  switch (op) {
    case ReduceOp::sum:
      return each([](Wide a, Wide b) { return a + b; });
    case ReduceOp::prod:
      return each([](Wide a, Wide b) { return a * b; });
    case ReduceOp::max:
      return each([](Wide a, Wide b) { return b > a ? b : a; });
    case ReduceOp::min:
      return each([](Wide a, Wide b) { return b < a ? b : a; });
  }
}

// Calls f(Wide{}, Narrow{}) with the C++ types of `dtype`.
template <class F>
void with_types(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{}, double{});
    case DType::f32:
      return f(float{}, float{});
    case DType::f16:
      return f(float{}, c10::Half{});
    case DType::bf16:
      return f(float{}, c10::BFloat16{});
    case DType::i64:
      return f(std::int64_t{}, std::int64_t{});
    case DType::i32:
      return f(std::int32_t{}, std::int32_t{});
    case DType::i16:
      return f(std::int16_t{}, std::int16_t{});
    case DType::i8:
      return f(std::int8_t{}, std::int8_t{});
    case DType::u8:
    case DType::boolean:
      return f(std::uint8_t{}, std::uint8_t{});
  }
  fail("reduction of an unknown dtype {}", static_cast<int>(dtype));
}

template <class From, class To>
void convert(void* to, const void* from, std::size_t count) {
  if constexpr (std::is_same_v<From, To>) {
    if (count > 0 && to != from) std::memmove(to, from, count * sizeof(To));
  } else {
    const auto* source = static_cast<const From*>(from);
    std::transform(source, source + count, static_cast<To*>(to), [](From value) { return static_cast<To>(value); });
  }
}

}  // namespace

DType accumulation_type(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype;
}

void combine(void* accumulated, const void* own, std::size_t count, DType dtype, ReduceOp op) {
  with_types(dtype, [&]<class Wide, class Narrow>(Wide, Narrow) {
    combine_as(static_cast<Wide*>(accumulated), static_cast<const Narrow*>(own), count, op);
  });
}

void widen(void* to, const void* from, std::size_t count, DType dtype) {
  with_types(dtype, [&]<class Wide, class Narrow>(Wide, Narrow) { convert<Narrow, Wide>(to, from, count); });
}

void narrow(void* to, const void* from, std::size_t count, DType dtype) {
  with_types(dtype, [&]<class Wide, class Narrow>(Wide, Narrow) { convert<Wide, Narrow>(to, from, count); });
}

}  // namespace qft::comm

#include <type_traits>

#include "collectives_call.h"
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace qft::sim::collectives {
namespace {

using comm::ReduceOp;

template <class Wide>
Wide join(Wide a, Wide b, ReduceOp op) {
  if constexpr (std::is_integral_v<Wide>) {  // integers wrap around
    using Bits = std::uint64_t;
    if (op == ReduceOp::sum) return static_cast<Wide>(static_cast<Bits>(a) + static_cast<Bits>(b));
    if (op == ReduceOp::prod) return static_cast<Wide>(static_cast<Bits>(a) * static_cast<Bits>(b));
  }
  if (op == ReduceOp::sum) return static_cast<Wide>(a + b);
  if (op == ReduceOp::prod) return static_cast<Wide>(a * b);
  return (op == ReduceOp::max ? b > a : b < a) ? b : a;
}

template <class Wide, class Narrow>
void reduce_as(void* out, const Parts& parts, std::size_t ranks, std::size_t count, ReduceOp op) {
  for (std::size_t i = 0; i < count; ++i) {
    auto sum = static_cast<Wide>(static_cast<const Narrow*>(parts[0])[i]);
    for (std::size_t r = 1; r < ranks; ++r) sum = join(sum, static_cast<Wide>(static_cast<const Narrow*>(parts[r])[i]), op);
    static_cast<Narrow*>(out)[i] = static_cast<Narrow>(sum);
  }
}

}  // namespace

void reduce_in_order(void* out, const Parts& parts, std::size_t ranks, std::size_t count, DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f64:
      return reduce_as<double, double>(out, parts, ranks, count, op);
    case DType::f32:
      return reduce_as<float, float>(out, parts, ranks, count, op);
    case DType::f16:
      return reduce_as<float, c10::Half>(out, parts, ranks, count, op);
    case DType::bf16:
      return reduce_as<float, c10::BFloat16>(out, parts, ranks, count, op);
    case DType::i64:
      return reduce_as<std::int64_t, std::int64_t>(out, parts, ranks, count, op);
    case DType::i32:
      return reduce_as<std::int32_t, std::int32_t>(out, parts, ranks, count, op);
    case DType::i8:
      return reduce_as<std::int8_t, std::int8_t>(out, parts, ranks, count, op);
    case DType::u8:
    case DType::boolean:
      return reduce_as<std::uint8_t, std::uint8_t>(out, parts, ranks, count, op);
    case DType::i16:
      break;
  }
  TORCH_CHECK(false, "sim: no reduction of this type");
}

}  // namespace qft::sim::collectives

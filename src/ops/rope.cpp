#include "qft/ops/rope.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "cpu/tensors.h"
#include "cuda/kernels.h"

namespace qft::ops {

void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  QFT_ASSERT(x.dim() == 3 && x.stride(2) == 1 && x.size(2) == 2 * table.cos.size(1),
             "heads of width {} do not fit a table of {} frequencies", x.size(-1), table.cos.size(1));
  QFT_ASSERT(positions.numel() == x.size(0), "{} positions for {} rows", positions.numel(), x.size(0));
  if (positions.is_cpu() && positions.numel() > 0) {
    const auto* p = positions.const_data_ptr<std::int32_t>();
    const auto [low, high] = std::minmax_element(p, p + positions.numel());
    require(*low >= 0 && *high < table.max_positions(),
            "position {} is outside the rotary table's {} positions: a sequence is longer than cutoff_len",
            *high, table.max_positions());
  }
  const bool done = cpu::with_kernel_type(x, [&]<class T>() {
    const Rope<T> args = rope_args<T>(x, positions, table, direction);
    const auto kernels = cpu::activation_kernels<T>();
    cpu::for_rows(x.size(0), x.size(1) * x.size(2),
                  [&](std::int64_t begin, std::int64_t end) { kernels.rope(args, begin, end); });
  });
  if (!done && !cuda::rope(x, positions, table, direction)) generic::rope(x, positions, table, direction);
}

}  // namespace qft::ops

#include "qft/ops/rope.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "cpu/tensors.h"
#include "device_kernels.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>

namespace qft::ops {

RopeTable RopeTable::build(std::span<const double> inverse_frequencies, std::int64_t max_positions, at::ScalarType data_dtype,
                           c10::Device device, double attention_scaling) {
  require(!inverse_frequencies.empty() && max_positions > 0,
          "a rotary table needs frequencies and positions: {} frequencies, {} positions", inverse_frequencies.size(),
          max_positions);
  at::Tensor frequencies = at::empty({static_cast<std::int64_t>(inverse_frequencies.size())}, at::kFloat);
  std::copy(inverse_frequencies.begin(), inverse_frequencies.end(), frequencies.data_ptr<float>());
  const at::Tensor angles = at::arange(max_positions, at::kFloat).unsqueeze(1) * frequencies.unsqueeze(0);
  const at::ScalarType stored = data_dtype == at::kDouble ? at::kDouble : at::kFloat;
  auto finish = [&](const at::Tensor& values) {
    return (values * attention_scaling).to(data_dtype).to(stored).to(device).contiguous();
  };
  return {finish(at::cos(angles)), finish(at::sin(angles))};
}

void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  QFT_ASSERT(x.dim() == 3 && x.stride(2) == 1 && x.size(2) == 2 * table.cos.size(1),
             "heads of width {} do not fit a table of {} frequencies", x.size(-1), table.cos.size(1));
  QFT_ASSERT(positions.numel() == x.size(0), "{} positions for {} rows", positions.numel(), x.size(0));
  if (positions.is_cpu() && positions.numel() > 0) {
    const auto* p = positions.const_data_ptr<std::int32_t>();
    const auto [low, high] = std::minmax_element(p, p + positions.numel());
    require(*low >= 0 && *high < table.max_positions(),
            "position {} is outside the rotary table's {} positions: a sequence is longer than cutoff_len", *high,
            table.max_positions());
  }
  const bool done = cpu::with_kernel_type(x, [&]<class T>() {
    const Rope<T> args = rope_args<T>(x, positions, table, direction);
    const auto kernels = cpu::activation_kernels<T>();
    cpu::for_rows(x.size(0), x.size(1) * x.size(2),
                  [&](std::int64_t begin, std::int64_t end) { kernels.rope(args, begin, end); });
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(x);
  if (kernels == nullptr || !kernels->rope(x, positions, table, direction)) generic::rope(x, positions, table, direction);
}

}  // namespace qft::ops

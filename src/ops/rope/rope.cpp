#include "qft/ops/rope.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sin.h>

namespace qft::ops {

RopeTable RopeTable::build(std::span<const double> inverse_frequencies, std::int64_t max_positions, at::ScalarType data_dtype,
                           c10::Device device, double attention_scaling) {
  const PositionRange all{{inverse_frequencies.begin(), inverse_frequencies.end()}, 0, max_positions};
  return build({&all, 1}, data_dtype, device, attention_scaling);
}

RopeTable RopeTable::build(std::span<const PositionRange> ranges, at::ScalarType data_dtype, c10::Device device,
                           double attention_scaling) {
  std::int64_t rows = 0;
  for (const PositionRange& s : ranges) rows += s.count;
  const std::size_t half = ranges.empty() ? 0 : ranges.front().inverse_frequencies.size();
  require(half > 0 && rows > 0, "a rotary table needs frequencies and positions: got {} frequencies, {} positions", half, rows);
  const auto options = at::TensorOptions().dtype(data_dtype == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor cos = at::empty({rows, static_cast<std::int64_t>(half)}, options), sin = at::empty_like(cos);
  write(ranges, data_dtype, attention_scaling, {cos, sin});
  return {cos.to(device), sin.to(device)};
}

void RopeTable::write(std::span<const PositionRange> ranges, at::ScalarType data_dtype, double attention_scaling,
                      const RopeTable& to) {
  constexpr std::int64_t kRows = 4096;  // per chunk, to bound temporary memory
  std::int64_t row = 0;
  const auto finish = [&](const at::Tensor& values, const at::Tensor& part) {
    part.narrow(0, row, values.size(0)).copy_((values * attention_scaling).to(data_dtype));
  };
  for (const PositionRange& s : ranges) {
    at::Tensor frequencies = at::empty({static_cast<std::int64_t>(s.inverse_frequencies.size())}, at::kFloat);
    std::ranges::copy(s.inverse_frequencies, frequencies.data_ptr<float>());
    for (std::int64_t first = s.first, end = s.first + s.count; first < end;) {
      const std::int64_t count = std::min(kRows, end - first);
      const at::Tensor angles = at::arange(first, first + count, at::kFloat).unsqueeze(1) * frequencies.unsqueeze(0);
      finish(at::cos(angles), to.cos);
      finish(at::sin(angles), to.sin);
      first += count;
      row += count;
    }
  }
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
    const auto kernels = cpu::rope_kernels<T>();
    cpu::for_rows(x.size(0), x.size(1) * x.size(2),
                  [&](std::int64_t begin, std::int64_t end) { kernels.rotate(args, begin, end); });
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(x);
  if (kernels == nullptr || !kernels->rope(x, positions, table, direction)) generic::rope(x, positions, table, direction);
}

}  // namespace qft::ops

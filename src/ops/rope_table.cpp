#include "qft/core/error.h"
#include "qft/ops/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sin.h>

namespace qft::ops {

RopeTable RopeTable::build(std::span<const double> inverse_frequencies, std::int64_t max_positions,
                           at::ScalarType data_dtype, c10::Device device, double attention_scaling) {
  require(!inverse_frequencies.empty() && max_positions > 0,
          "a rotary table needs frequencies and positions: {} frequencies, {} positions",
          inverse_frequencies.size(), max_positions);
  at::Tensor frequencies = at::empty({static_cast<std::int64_t>(inverse_frequencies.size())}, at::kFloat);
  std::copy(inverse_frequencies.begin(), inverse_frequencies.end(), frequencies.data_ptr<float>());
  const at::Tensor angles = at::arange(max_positions, at::kFloat).unsqueeze(1) * frequencies.unsqueeze(0);
  const at::ScalarType stored = data_dtype == at::kDouble ? at::kDouble : at::kFloat;
  auto finish = [&](const at::Tensor& values) {
    return (values * attention_scaling).to(data_dtype).to(stored).to(device).contiguous();
  };
  return {finish(at::cos(angles)), finish(at::sin(angles))};
}

}  // namespace qft::ops

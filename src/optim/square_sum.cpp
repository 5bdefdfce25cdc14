#include "qft/optim/square_sum.h"

#include "qft/core/activity.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "device_kernels.h"
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

namespace qft::optim {
namespace {

/// Elements that one thread sums at a time; independent of the number of threads.
constexpr std::int64_t kSummedAtOnce = 1 << 17;
/// Parallel sums, so that the compiler can use vector instructions.
constexpr std::int64_t kLanes = 16;

template <class T>
double square_sum_of(const T* values, std::int64_t count) {
  std::array<double, kLanes> sums{};
  const std::int64_t whole = count / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto v = static_cast<double>(values[i + lane]);
      sums[static_cast<std::size_t>(lane)] += v * v;
    }
  for (std::int64_t i = whole; i < count; ++i) {
    const auto v = static_cast<double>(values[i]);
    sums[static_cast<std::size_t>(i - whole)] += v * v;
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

/// Returns the square sums of the pieces of a CPU tensor.
at::Tensor square_parts(const at::Tensor& given) {
  const at::Tensor values = given.contiguous();
  const std::int64_t count = values.numel(), pieces = (count + kSummedAtOnce - 1) / kSummedAtOnce;
  const at::Tensor parts = at::zeros({pieces}, at::kDouble);
  auto* sums = parts.data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, values.scalar_type(), "square_sum", [&] {
    const auto* first = values.const_data_ptr<scalar_t>();
    at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t p = begin; p < end; ++p)
        sums[p] = square_sum_of(first + p * kSummedAtOnce, std::min(kSummedAtOnce, count - p * kSummedAtOnce));
    });
  });
  return parts;
}

/// Returns the square sum, [1], on the tensor's device.
at::Tensor by_aten(const at::Tensor& values) {
  // In pieces, because ATen makes an fp64 copy of its input.
  constexpr std::int64_t kCopied = 1 << 20;
  at::Tensor total;
  for (std::int64_t first = 0; first < values.numel(); first += kCopied) {
    const at::Tensor piece = values.narrow(0, first, std::min(kCopied, values.numel() - first));
    const at::Tensor part = at::linalg_vector_norm(piece, 2, at::OptionalIntArrayRef(), false, at::kDouble).square();
    total = total.defined() ? total.add_(part) : part;
  }
  return total.reshape({1});
}

/// Returns partial square sums of one tensor, on its device.
at::Tensor parts_of(const at::Tensor& values) {
  if (values.is_cpu()) return square_parts(values);
  const DeviceKernels* kernels = device_kernels(values);
  const at::Tensor by_kernel = kernels == nullptr ? at::Tensor() : kernels->square_parts(values);
  return by_kernel.defined() ? by_kernel : by_aten(values);
}

}  // namespace

std::vector<double> square_sums(at::TensorList tensors) {
  std::vector<at::Tensor> parts;
  std::vector<std::int64_t> counts;  // of each tensor's parts
  for (const at::Tensor& values : tensors) {
    counts.push_back(0);
    if (values.numel() == 0) continue;
    parts.push_back(parts_of(values));
    counts.back() = parts.back().numel();
  }
  std::vector<double> sums(counts.size());
  if (parts.empty()) return sums;
  const activity::Waiting waiting(activity::Wait::device);
  const at::Tensor all = at::cat(parts).cpu();
  const double* first = all.const_data_ptr<double>();
  for (std::size_t t = 0; t < sums.size(); first += counts[t++]) sums[t] = std::accumulate(first, first + counts[t], 0.0);
  return sums;
}

}  // namespace qft::optim

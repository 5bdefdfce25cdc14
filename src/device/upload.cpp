#include "qft/device/upload.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace qft::device {
namespace {

template <class T>
at::Tensor upload_values(std::span<const T> values, c10::Device device) {
  const auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value).pinned_memory(!device.is_cpu());
  const at::Tensor host = at::empty({static_cast<std::int64_t>(values.size())}, options);
  std::ranges::copy(values, host.data_ptr<T>());
  // LibTorch reuses pinned memory only when the copies from it are done.
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true);
}

}  // namespace

at::Tensor upload(std::span<const std::int32_t> values, c10::Device device) {
  return upload_values(values, device);
}
at::Tensor upload(std::span<const std::int64_t> values, c10::Device device) {
  return upload_values(values, device);
}
at::Tensor upload(std::span<const double> values, c10::Device device) {
  return upload_values(values, device);
}
void upload(const at::Tensor& host, const at::Tensor& to) {
  if (to.is_cpu()) {
    to.copy_(host);
    return;
  }
  const at::Tensor pinned = at::empty(host.sizes(), host.options().pinned_memory(true));
  pinned.copy_(host);
  to.copy_(pinned, /*non_blocking=*/true);
}

}  // namespace qft::device

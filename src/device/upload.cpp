#include "qft/device/upload.h"

#include "qft/device/memory.h"

#include <algorithm>
#include <exception>
#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>

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

/// Waits, because copies may still use the memory that is about to be freed.
void wait_for(c10::Device device) noexcept {
  try {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  } catch (const std::exception&) {
    // The device is lost, and with it its copies.
  }
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

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  const at::TensorOptions options(dtype);
  if (device.is_cpu()) return at::empty(sizes, options);
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  const auto memory = std::make_shared<PinnedBuffer>(bytes, device);
  return at::from_blob(memory->data(), sizes, [memory, device](void*) { wait_for(device); }, options);
}

}  // namespace qft::device

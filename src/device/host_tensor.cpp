#include "qft/device/host_tensor.h"

#include "qft/device/memory.h"

#include <exception>
#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>

namespace qft::device {
namespace {

/// Waits, because copies may still use the memory that is about to be freed.
void wait_for(c10::Device device) noexcept {
  try {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  } catch (const std::exception&) {
    // The device is lost, and with it its copies.
  }
}

}  // namespace

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device) {
  const at::TensorOptions options(dtype);
  if (device.is_cpu()) return at::empty(sizes, options);
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  const auto memory = std::make_shared<PinnedBuffer>(bytes, device);
  return at::from_blob(memory->data(), sizes, [memory, device](void*) { wait_for(device); }, options);
}

}  // namespace qft::device

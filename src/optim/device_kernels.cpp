#include "device_kernels.h"

#include "qft/device/backends.h"

namespace qft::optim {

const DeviceKernels* device_kernels(const at::Tensor& t) {
  return device::part_of<DeviceKernels>(t.device(), "optim");
}

const DeviceKernels* device_kernels(const Update& update) {
  const DeviceKernels* kernels = device_kernels(update.master);
  return kernels != nullptr && kernels->can_update(update) ? kernels : nullptr;
}

}  // namespace qft::optim

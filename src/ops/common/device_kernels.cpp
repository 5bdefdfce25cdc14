#include "device_kernels.h"

#include "qft/device/backends.h"

namespace qft::ops {

const DeviceKernels* device_kernels(const at::Tensor& t) {
  return device::part_of<DeviceKernels>(t.device(), "ops");
}

}  // namespace qft::ops

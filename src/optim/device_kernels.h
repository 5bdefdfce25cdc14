// The optimizer's own kernels on an accelerator: a back end's part "optim". They are queued on the current stream.
#pragma once

#include "qft/optim/rule.h"

namespace qft::optim {

struct DeviceKernels {
  /// Whether the rules' kernels know these element types, and all of it is on one device.
  bool (*can_update)(const Update& update);

  /// One update, where can_update(); writes the copy too.
  void (*adamw)(const Update& update, const Hyper& hyper);
  void (*lion)(const Update& update, const Hyper& hyper);

  /// parts [k] fp64 on values' device, whose sum is the sum of squares; undefined where there is no kernel for `values`.
  at::Tensor (*square_parts)(const at::Tensor& values);
};

/// Those of t's device; null on the CPU, and where the device has none.
const DeviceKernels* device_kernels(const at::Tensor& t);

/// Those that can do this update; null: ATen does it.
const DeviceKernels* device_kernels(const Update& update);

}  // namespace qft::optim

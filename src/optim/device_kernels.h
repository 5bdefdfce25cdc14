// The optimizer's own kernels on an accelerator: a back end's part "optim". They are queued on the current stream.
#pragma once

#include "qft/optim/rule.h"

namespace qft::optim {

struct DeviceKernels {
  /// Returns whether the rules' kernels support these element types, and all tensors are on one device.
  bool (*can_update)(const Update& update);

  /// Perform one update, if can_update(); also write the copy.
  void (*adamw)(const Update& update, const Hyper& hyper);
  void (*lion)(const Update& update, const Hyper& hyper);

  /// Returns parts [k] in fp64 on the device of `values`; their sum is the sum of squares. Undefined if there is no kernel for
  /// `values`.
  at::Tensor (*square_parts)(const at::Tensor& values);
};

/// Returns the kernels of t's device; null on the CPU, and if the device has none.
const DeviceKernels* device_kernels(const at::Tensor& t);

/// Returns kernels that can do this update; null: use ATen.
const DeviceKernels* device_kernels(const Update& update);

}  // namespace qft::optim

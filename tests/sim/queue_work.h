// Kernels of the device's own, as queued work over raw addresses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host_call.h"
#include <ATen/core/Tensor.h>

namespace qft::sim {

/// Queues `work` on the current stream of the device that the tensors are on. When its turn comes it gets `reads`, then `writes`,
/// as tensors of the host. Undefined tensors stay so.
void queue_work(std::string name, const Tensors& reads, const Tensors& writes, std::function<void(const Tensors&)> work);

}  // namespace qft::sim

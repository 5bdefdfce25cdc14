// Kernels for the device, as queued work on raw addresses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host_call.h"
#include <ATen/core/Tensor.h>

namespace qft::sim {

/// Queues `work` on the current stream of the tensors' device. When its turn comes, it gets `reads` and then `writes` as host
/// tensors. Undefined tensors stay undefined.
void queue_work(std::string name, const Tensors& reads, const Tensors& writes, std::function<void(const Tensors&)> work);

}  // namespace qft::sim

// The parts of the CUDA back end: one for each module that uses a back end.
#pragma once

#include "qft/device/backend.h"

#include <memory>

namespace qft::cuda {

const void* comm_part();   ///< comm::CollectiveLibrary: nccl.cpp
const void* ops_part();    ///< ops::DeviceKernels: ops.cpp
const void* optim_part();  ///< optim::DeviceKernels: optim.cpp

std::unique_ptr<device::GraphRecorder> make_recorder(int index);  // graph.cpp

}  // namespace qft::cuda

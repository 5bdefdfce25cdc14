// What device.cpp and memory.cpp need of CUDA; a CPU build has no device and never calls the rest.
#pragma once

#include "qft/device/memory.h"

#include <cstddef>
#include <string>

namespace qft::device::cuda {

int device_count();
void set_device(int index);
std::string describe(int index);
/// "CUDA 13.0".
std::string library_version();
MemoryUse memory_use(int index);
void reset_peak(int index);
/// Pinned host memory, or null.
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data);
/// Whether waiting for a device throws c10::Error, in the whole process.
void refuse_waits(bool refuse);
void copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace qft::device::cuda

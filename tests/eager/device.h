// A device that does all work at once, in host memory: what LibTorch and qft ask of one, and nothing else.
#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

namespace qft::eager {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;
inline constexpr std::size_t kMemory = std::size_t{4} << 30;  // bytes that it says it has

/// Of tensors on the device.
c10::DeviceAllocator* device_allocator();
/// Of host memory that counts as pinned.
c10::Allocator* pinned_allocator();
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data);
bool is_pinned(const void* data);

/// Kernels: memory, views and copies are its own, all else is the CPU's.
void register_operations();
/// Makes "eager" a device of LibTorch. Once a process.
void register_device();

}  // namespace qft::eager

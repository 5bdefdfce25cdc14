// A device that does all work immediately, in host memory. It implements only what LibTorch and qft require of a device.
#pragma once

#include <cstddef>

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

namespace qft::eager {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;
inline constexpr std::size_t kMemory = std::size_t{4} << 30;  // bytes that it claims to have

/// Allocator for tensors on the device.
c10::DeviceAllocator* device_allocator();
/// Allocator for host memory that counts as pinned.
c10::Allocator* pinned_allocator();
void* allocate_pinned(std::size_t bytes);
void free_pinned(void* data);
bool is_pinned(const void* data);

/// Registers kernels: memory, views and copies are implemented here, the CPU's kernels do everything else.
void register_operations();
/// Registers "eager" as a LibTorch device. Call once per process.
void register_device();

}  // namespace qft::eager

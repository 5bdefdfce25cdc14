// Current devices and streams, and LibTorch's guard and hook interfaces for the device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace qft::sim {

/// Returns this thread's current device.
c10::Device current_device();
c10::Stream current_stream(c10::DeviceIndex device);

/// Registers "sim" and its parts as a LibTorch device. Call once per process.
void register_device();

}  // namespace qft::sim

// Current devices and streams, and what LibTorch asks of a device by its interfaces for guards and hooks.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace qft::sim {

/// Of this thread.
c10::Device current_device();
c10::Stream current_stream(c10::DeviceIndex device);

/// Makes "sim" a device of LibTorch, with all that belongs to it. Once a process.
void register_device();

}  // namespace qft::sim

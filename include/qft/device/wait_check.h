// Checks that nothing makes the host wait for its device, because the host should queue work well ahead of it.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace qft::device {

/// Runs `body`. If `armed` and `device` is not the CPU, throws Error with `where()` and a backtrace when LibTorch, or our Event
/// or Stream, would make the host wait: item(), a copy from or to pageable memory, synchronize(). The check covers the whole
/// process, so no other thread may wait for a device meanwhile. Otherwise runs `body` unchecked.
void without_waits(c10::Device device, bool armed, const std::function<std::string()>& where, const std::function<void()>& body);

}  // namespace qft::device

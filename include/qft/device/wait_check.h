// A check that nothing makes the host wait for its device, because the host should queue work well ahead of it.
#pragma once

#include <functional>
#include <string>

#include <c10/core/Device.h>

namespace qft::device {

/// Runs `body`. If `armed` and `device` is no CPU, throws Error with `where()` and a backtrace where LibTorch or an Event or
/// Stream of ours would make the host wait in it: for item(), a copy from or to pageable memory, synchronize(). That holds
/// for the whole process: no other thread may wait for a device meanwhile. Otherwise `body` runs unchecked.
void without_waits(c10::Device device, bool armed, const std::function<std::string()>& where, const std::function<void()>& body);

}  // namespace qft::device

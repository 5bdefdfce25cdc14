// Selects the device for a test that runs on several kinds.
#pragma once

#include "qft/comm/session.h"

#include <cstdlib>

#include <c10/core/Device.h>

namespace qft::test {

/// Returns the device named by QFT_DEVICE; without it the CPU. The first call is collective over the world.
inline c10::Device device_under_test() {
  static const c10::Device device =
      comm::choose_device(comm::Session::current(), std::getenv("QFT_DEVICE") == nullptr ? "cpu" : std::getenv("QFT_DEVICE"));
  return device;
}

}  // namespace qft::test

// The device that a test which runs on several kinds is to use.
#pragma once

#include "qft/comm/device_choice.h"
#include "qft/comm/session.h"

#include <cstdlib>

#include <c10/core/Device.h>

namespace qft::test {

/// The device that QFT_DEVICE names; without it the CPU. Collective over the world at its first call.
inline c10::Device device_under_test() {
  static const c10::Device device =
      comm::choose_device(comm::Session::current(), std::getenv("QFT_DEVICE") == nullptr ? "cpu" : std::getenv("QFT_DEVICE"));
  return device;
}

}  // namespace qft::test

// Fixture for tests on the simulated device: a test fails if it leaves errors untaken.
#pragma once

#include "qft/device/backend.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "sim.h"
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

extern "C" const qft::device::Backend* qft_device_backend();

namespace qft::sim {

inline constexpr std::int64_t kMemory = std::int64_t{256} << 20;  ///< of the device

inline const device::Backend& backend() {
  static const device::Backend* const one = [] {
    setenv("QFT_SIM_MEMORY", std::to_string(kMemory).c_str(), 1);
    setenv("QFT_DEVICE", "sim", 1);  // for tests that select the device as qft does
    return qft_device_backend();
  }();
  return *one;
}

class Sim : public testing::Test {
 protected:
  Sim() { backend(); }
  void TearDown() override {
    guard().synchronizeDevice(0);
    EXPECT_EQ(errors(), std::vector<std::string>{});
  }

  static const c10::impl::DeviceGuardImplInterface& guard() {
    return *c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
  }
  static c10::Device device() { return {c10::DeviceType::PrivateUse1, 0}; }
  static at::TensorOptions on_device(c10::ScalarType type = at::kFloat) { return at::TensorOptions(device()).dtype(type); }
  static c10::Stream main_stream() { return guard().getDefaultStream(device()); }
  static c10::Stream new_stream() { return guard().getStreamFromGlobalPool(device(), false); }
  static c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(c10::DeviceType::PrivateUse1); }
  static void order(const c10::Stream& first, const c10::Stream& second) {
    c10::Event event(c10::DeviceType::PrivateUse1);
    event.record(first);
    event.block(second);
  }
  static at::Tensor pinned(c10::IntArrayRef size) { return at::empty(size, at::TensorOptions().pinned_memory(true)); }

  /// Takes the errors since the last call and expects exactly one, which contains all these words.
  static void expect_error(const std::vector<std::string>& words) {
    const auto all = errors();
    ASSERT_EQ(all.size(), 1U);
    for (const std::string& word : words) EXPECT_NE(all[0].find(word), std::string::npos) << all[0] << "\nlacks: " << word;
  }
};

}  // namespace qft::sim

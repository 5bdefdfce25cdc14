#include "qft/device/backend.h"

#include <dlfcn.h>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

TEST(SimLibrary, IsADeviceOnlyOnceItIsAskedFor) {
  constexpr auto kType = c10::DeviceType::PrivateUse1;
  void* const library = dlopen(QFT_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_FALSE(c10::is_privateuse1_backend_registered());
  EXPECT_FALSE(c10::impl::hasDeviceGuardImpl(kType));
  EXPECT_FALSE(at::getAccelerator().has_value());

  const auto function = reinterpret_cast<qft::device::BackendFunction>(dlsym(library, qft::device::kBackendFunction));
  ASSERT_NE(function, nullptr);
  const qft::device::Backend* const backend = function();
  EXPECT_EQ(function(), backend);
  EXPECT_EQ(backend->name(), "sim");
  EXPECT_EQ(backend->type(), kType);
  std::string why;
  EXPECT_EQ(backend->count(why), 1);
  EXPECT_EQ(at::getAccelerator(), kType);
  EXPECT_EQ((at::ones({4}, c10::Device("sim")) * 2).sum().item<float>(), 8);
}

// Shared by the tests of CUDA kernels.
#pragma once

#include "qft/ops/workspace.h"

#include <string>
#include <vector>

#include "support/gpu.h"
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

namespace qft::ops::testing {

inline const std::vector<at::ScalarType> kKernelDtypes = {at::kFloat, at::kBFloat16, at::kHalf};

template <class F>
void with_type(at::ScalarType type, F f) {
  if (type == at::kFloat) return f.template operator()<float>();
  if (type == at::kBFloat16) return f.template operator()<c10::BFloat16>();
  return f.template operator()<c10::Half>();
}

/// Test parameter: true runs on a GPU, false runs the CUDA stand-in (tests/support/simt.h).
class KernelTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !test::has_gpu()) GTEST_SKIP() << "no GPU";
  }
  bool on_gpu() const { return GetParam(); }
  c10::Device device() const { return on_gpu() ? c10::Device(at::kCUDA, 0) : c10::Device(at::kCPU); }

  Workspace workspace_{device()};
};

inline std::string name_of_place(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "Gpu" : "StandIn";
}

}  // namespace qft::ops::testing

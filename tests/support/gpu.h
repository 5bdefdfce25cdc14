// Tells whether the GPU part of a test can run.
#pragma once

#include "qft/device/backends.h"
#include "qft/device/device.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace qft::test {

/// Returns false if there is no GPU. If a GPU is present but unused although this build has the CUDA part, the test fails.
inline bool has_gpu() {
  if (device::device_count("cuda") > 0) return true;
  const char* built = std::getenv("QFT_BACKEND_PATH");
  const bool is_due = std::filesystem::exists("/dev/nvidia0") && built != nullptr &&
                      std::filesystem::exists(std::filesystem::path(built) / "libqft_cuda.so");
  if (is_due) ADD_FAILURE() << "a GPU is present but not used: " << device::find_backend_entry("cuda")->why;
  return false;
}

}  // namespace qft::test

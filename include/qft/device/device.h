// Which device this rank computes on. Another accelerator would enter here and in stream.h, memory.h.
#pragma once

#include <string>
#include <string_view>

#include <c10/core/Device.h>

namespace qft::device {

/// True in builds with -DQFT_CUDA=ON.
bool built_with_cuda();

/// CUDA devices that this process sees; 0 in a CPU build.
int cuda_device_count();

/// What select_device() knows, for help and messages.
inline constexpr const char* kDeviceWords = "auto, cpu, cuda or cuda:N";

/// The device for `wish`: "auto" (CUDA where there is one, else cpu), "cpu", "cuda" (device local_rank),
/// "cuda:N". Makes it the current one. Throws ConfigError for an unknown word, and where CUDA is wished but
/// the build, the machine or the number of ranks on the node (local_size) does not allow it.
c10::Device select_device(std::string_view wish, int local_rank = 0, int local_size = 1);

/// "NVIDIA H200, 139.8 GiB, compute capability 9.0" or the CPU's model name.
std::string describe(c10::Device device);

/// "LibTorch 2.11.0, CUDA 13.0" or "LibTorch 2.11.0, no CUDA".
std::string library_version();

}  // namespace qft::device

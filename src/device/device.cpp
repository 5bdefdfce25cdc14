#include "qft/device/device.h"

#include "qft/core/error.h"

#include <charconv>
#include <cstdlib>
#include <fstream>
#include <string>

#include "cuda_api.h"
#include <fmt/format.h>
#include <torch/version.h>

namespace qft::device {

namespace {

bool ranks_may_share_a_gpu() {
  const char* value = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return value != nullptr && std::string_view(value) == "1";
}

c10::Device cuda_device(int index) {
  cuda::set_device(index);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

c10::Device cuda_of_rank(int local_rank, int local_size) {
  const int devices = cuda_device_count();
  if (local_rank < devices) return cuda_device(local_rank);
  if (ranks_may_share_a_gpu()) return cuda_device(local_rank % devices);
  fail_config(
      "{} ranks on this node, but {} CUDA device{}: start one rank per device, or set "
      "NCCL_MULTI_RANK_GPU_ENABLE=1 to share them (NCCL 2.30 or newer)",
      local_size, devices, devices == 1 ? "" : "s");
}

}  // namespace

int cuda_device_count() {
  return cuda::device_count();
}

c10::Device select_device(std::string_view wish, int local_rank, int local_size) {
  if (wish == "cpu") return c10::kCPU;
  if (wish == "auto") return cuda_device_count() > 0 ? cuda_of_rank(local_rank, local_size) : c10::Device(c10::kCPU);
  if (wish != "cuda" && !wish.starts_with("cuda:")) {
    fail_config("device '{}' is not known: use {}", wish, kDeviceWords);
  }
  if (!built_with_cuda()) fail_config("device '{}' is asked for, but this build has no CUDA: build with -DQFT_CUDA=ON", wish);
  const int devices = cuda_device_count();
  if (devices == 0)
    fail_config(
        "device '{}' is asked for, but this process sees no CUDA device: check the driver (nvidia-smi) and "
        "CUDA_VISIBLE_DEVICES",
        wish);
  if (wish == "cuda") return cuda_of_rank(local_rank, local_size);
  const auto digits = wish.substr(5);
  int index = -1;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    fail_config("device '{}' is not known: use {}", wish, kDeviceWords);
  }
  if (index < 0 || index >= devices)
    fail_config("device '{}' is asked for, but there are {} (0..{})", wish, devices, devices - 1);
  return cuda_device(index);
}

std::string describe(c10::Device device) {
  if (device.is_cuda()) return cuda::describe(device.index());
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

std::string library_version() {
  return fmt::format("LibTorch {}, {}", TORCH_VERSION, built_with_cuda() ? cuda::library_version() : "no CUDA");
}

}  // namespace qft::device

// The CUDA back end. libqft_cuda.so uses our headers but links none of our libraries.
#include "qft/device/backend.h"

#include <cstdlib>
#include <cuda_runtime_api.h>
#include <string>
#include <string_view>

#include "chips.h"
#include "launch.h"
#include "parts.h"
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

namespace qft::cuda {
namespace {

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties;
}

/// Formats a UUID like nvidia-smi -L.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

/// Reports missing code for a chip now; CUDA would fail only at the first kernel: "no kernel image is available".
std::string obstacle_of(const cudaDeviceProp& p) {
  const int chip = p.major * 10 + p.minor;
  const std::string ours = chip_obstacle(chip, "qft's", QFT_CUDA_CODE);
  return ours.empty() ? chip_obstacle(chip, "LibTorch's", at::detail::getCUDAHooks().showConfig()) : ours;
}

class CudaBackend final : public device::Backend {
 public:
  std::string_view name() const override { return "cuda"; }
  c10::DeviceType type() const override { return c10::kCUDA; }
  std::string library_version() const override {
    // The version at compile time: querying the library fails without a driver.
    return fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  }

  int count(std::string& why) const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
      cudaGetLastError();  // clears the error
      why = fmt::format("cudaGetDeviceCount: {}", cudaGetErrorString(error));
      return 0;
    }
    if (count == 0) why = "CUDA finds no device";
    return count;
  }

  device::DeviceFacts facts(int index) const override {
    const cudaDeviceProp p = properties_of(index);
    const char* shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    constexpr int kAmpere = 8;  // the first generation that multiplies bf16
    return {.name = p.name,
            .uuid = uuid_text(p.uuid),
            .architecture = fmt::format("compute capability {}.{}", p.major, p.minor),
            .memory = static_cast<std::int64_t>(p.totalGlobalMem),
            .unified = p.integrated != 0,
            .bf16 = p.major >= kAmpere,
            .torch_attention = true,
            .graphs = true,
            .shareable = shared != nullptr && std::string_view(shared) == "1",
            .sharing = "set NCCL_MULTI_RANK_GPU_ENABLE=1 to share them (needs NCCL 2.30; older versions refuse)",
            .obstacle = obstacle_of(p)};
  }

  void* allocate_pinned(std::size_t bytes) const override {
    void* data = nullptr;
    if (cudaHostAlloc(&data, bytes, cudaHostAllocDefault) == cudaSuccess) return data;
    cudaGetLastError();  // clears the error; the caller reports the failure
    return nullptr;
  }
  void free_pinned(void* data) const override { C10_CUDA_CHECK_WARN(cudaFreeHost(data)); }

  void copy_bytes(void* to, const void* from, std::size_t bytes, const c10::Stream& stream) const override {
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c10::cuda::CUDAStream(stream).stream()));
  }

  void refuse_waits(bool refuse) const override {
    using c10::cuda::SyncDebugMode;
    c10::cuda::warning_state().set_sync_debug_mode(refuse ? SyncDebugMode::L_ERROR : SyncDebugMode::L_DISABLED);
  }
  bool is_refusal(std::string_view text) const override {
    return text.find("called a synchronizing CUDA operation") != std::string_view::npos;  // LibTorch's words
  }

  std::unique_ptr<device::GraphRecorder> recorder(int index) const override { return make_recorder(index); }

  const void* part(std::string_view module) const override {
    if (module == "comm") return comm_part();
    if (module == "ops") return ops_part();
    return module == "optim" ? optim_part() : nullptr;
  }
};

}  // namespace

OnStream on_current_stream() {
  return {c10::cuda::getCurrentCUDAStream()};
}
void check_launch() {
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace qft::cuda

extern "C" __attribute__((visibility("default"))) qft::device::BackendAbi qft_device_backend_abi = QFT_BACKEND_ABI;

extern "C" __attribute__((visibility("default"))) const qft::device::Backend* qft_device_backend() {
  static const qft::cuda::CudaBackend backend;
  return &backend;
}

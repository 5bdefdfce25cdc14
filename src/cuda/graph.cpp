// CUDA graphs with LibTorch's at::cuda::CUDAGraph; its allocator keeps graph memory in a private pool.
#include <utility>

#include "parts.h"
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

namespace qft::cuda {
namespace {

class CudaGraph final : public device::Graph {
 public:
  CudaGraph(const c10::Stream& stream, const c10::MempoolId_t& pool, const std::function<void()>& work) {
    const c10::StreamGuard on_stream(stream);
    // Thread-local mode: MPI, NCCL and checkpoint threads query events meanwhile, and must neither break the capture nor be
    // blocked by it.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_broken();
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  /// Takes the stream out of the capture. The original error is already known and ends the run.
  void end_broken() noexcept {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      cudaGetLastError();  // clears the error
    }
  }

  at::cuda::CUDAGraph graph_;
};

/// One pool for all graphs: captured work frees everything it allocates, so nothing in the pool outlives a replay. The recorder
/// holds a reference to the pool, because LibTorch rejects a pool that all its graphs have left.
class CudaRecorder final : public device::GraphRecorder {
 public:
  explicit CudaRecorder(c10::DeviceIndex index) : device_(index) {
    c10::cuda::CUDACachingAllocator::createOrIncrefPool(device_, pool_);
  }
  ~CudaRecorder() override { c10::cuda::CUDACachingAllocator::releasePool(device_, pool_); }
  CudaRecorder(const CudaRecorder&) = delete;
  CudaRecorder& operator=(const CudaRecorder&) = delete;

  std::unique_ptr<device::Graph> capture(const c10::Stream& stream, const std::function<void()>& work) override {
    return std::make_unique<CudaGraph>(stream, pool_, work);
  }

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace

std::unique_ptr<device::GraphRecorder> make_recorder(int index) {
  return std::make_unique<CudaRecorder>(static_cast<c10::DeviceIndex>(index));
}

}  // namespace qft::cuda

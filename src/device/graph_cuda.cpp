// Graphs by LibTorch's at::cuda::CUDAGraph, whose private memory its allocator keeps apart.
#include <utility>

#include "graph_host.h"
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace qft::device {
namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(const Stream& stream, const c10::MempoolId_t& pool, const std::function<void()>& work) {
    const StreamGuard on_stream(stream);
    // Threads of MPI, NCCL and checkpoints ask for events meanwhile: they are not to break the capture, nor it them.
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
  /// The stream leaves the capture; what is wrong is already known, and ends the run.
  void end_broken() noexcept {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
      cudaGetLastError();  // clears it
    }
  }

  at::cuda::CUDAGraph graph_;
};

}  // namespace

// One pool for all graphs: what their work allocates it also frees, so that nothing in the pool outlives a replay. The
// reference held here keeps the pool while there is no graph: LibTorch takes no pool that all its graphs have left.
struct GraphPool::Memory {
  explicit Memory(c10::DeviceIndex index) : device(index) { c10::cuda::CUDACachingAllocator::createOrIncrefPool(device, id); }
  ~Memory() { c10::cuda::CUDACachingAllocator::releasePool(device, id); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  c10::DeviceIndex device;
  c10::MempoolId_t id = at::cuda::graph_pool_handle();
};

GraphPool::GraphPool(c10::Device device)
    : device_(device),
      stream_(Stream::make(device)),
      memory_(device.is_cuda() ? std::make_unique<Memory>(device.index()) : nullptr) {}
GraphPool::~GraphPool() = default;

std::unique_ptr<Graph> GraphPool::capture(std::function<void()> work) const {
  if (!memory_) return host_graph(std::move(work));
  return std::make_unique<CudaGraph>(stream_, memory_->id, work);
}

}  // namespace qft::device

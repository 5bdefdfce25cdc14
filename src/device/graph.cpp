#include "qft/device/graph.h"

#include "qft/device/backends.h"

#include <utility>

namespace qft::device {
namespace {

/// On the CPU: a stored function.
class HostGraph final : public Graph {
 public:
  explicit HostGraph(std::function<void()> work) : work_(std::move(work)) {}
  void replay() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace

GraphPool::GraphPool(c10::Device device)
    : device_(device),
      stream_(Stream::make(device)),
      recorder_(device.is_cpu() ? nullptr : backend_of(device).recorder(device.index())) {}
GraphPool::~GraphPool() = default;

void GraphPool::warm_up(const std::function<void()>& work) const {
  const Stream current = Stream::current(device_);
  stream_.wait(current);
  {
    const StreamGuard on_stream(stream_);
    work();
  }
  current.wait(stream_);
}

std::unique_ptr<Graph> GraphPool::capture(std::function<void()> work) const {
  if (recorder_ == nullptr) return std::make_unique<HostGraph>(std::move(work));
  return recorder_->capture(stream_.torch(), work);
}

}  // namespace qft::device

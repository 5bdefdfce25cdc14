#include "qft/device/graph.h"

#include <utility>

#include "graph_host.h"

namespace qft::device {
namespace {

class HostGraph final : public Graph {
 public:
  explicit HostGraph(std::function<void()> work) : work_(std::move(work)) {}
  void replay() override { work_(); }

 private:
  std::function<void()> work_;
};

}  // namespace

std::unique_ptr<Graph> host_graph(std::function<void()> work) {
  return std::make_unique<HostGraph>(std::move(work));
}

void GraphPool::warm_up(const std::function<void()>& work) const {
  const Stream current = Stream::current(device_);
  Event before(device_), after(device_);
  before.record(current);
  stream_.wait(before);
  {
    const StreamGuard on_stream(stream_);
    work();
  }
  after.record(stream_);
  current.wait(after);
}

}  // namespace qft::device

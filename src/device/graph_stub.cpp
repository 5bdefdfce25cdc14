// CPU builds: GraphPool makes functions that are called again.
#include <utility>

#include "graph_host.h"

namespace qft::device {

struct GraphPool::Memory {};

GraphPool::GraphPool(c10::Device device) : device_(device), stream_(Stream::make(device)) {}
GraphPool::~GraphPool() = default;

std::unique_ptr<Graph> GraphPool::capture(std::function<void()> work) const {
  return host_graph(std::move(work));
}

}  // namespace qft::device

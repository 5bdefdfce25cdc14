// A graph on the CPU: a function that is called again. Private to device.
#pragma once

#include "qft/device/graph.h"

#include <functional>
#include <memory>

namespace qft::device {

std::unique_ptr<Graph> host_graph(std::function<void()> work);

}  // namespace qft::device

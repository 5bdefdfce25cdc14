// A graph on the CPU: a function that is called again. Private to device.
#pragma once

#include <functional>
#include <memory>

#include "qft/device/graph.h"

namespace qft::device {

std::unique_ptr<Graph> host_graph(std::function<void()> work);

}  // namespace qft::device

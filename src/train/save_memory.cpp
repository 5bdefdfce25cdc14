#include "save_memory.h"

#include "qft/comm/exchange.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/parallel/out_of_memory.h"

#include <fmt/format.h>

namespace qft::train {

void take_memory(comm::Communicator& comm, c10::Device device, const std::string& what, const std::function<void()>& take) {
  const auto held = [] { return format_bytes(static_cast<double>(device::host_memory().current)) + " of host memory in total"; };
  comm::agreed(comm, [&] {
    parallel::explain_out_of_memory(
        take, [&] { return what; }, held,
        fmt::format("{}fewer ranks on each node; more ranks, on more nodes, with strategy zero3",
                    device.is_cpu() ? "async_save: false, which saves without a copy; " : ""));
  });
}

}  // namespace qft::train

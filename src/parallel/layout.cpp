#include "qft/parallel/layout.h"

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <algorithm>

namespace qft::parallel {

int ranks_of_a_node(comm::Communicator& world) {
  const auto& session = comm::Session::current();
  const auto sizes = comm::all_gather_value(world.host(), session.local_size());
  const auto nodes = comm::all_gather_value(world.host(), session.node());
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  if (*least != *most)
    fail_config(
        "hsdp shards inside each node, but there are nodes with {} and with {} ranks: start the same number on each, or set "
        "hsdp_group_size",
        *least, *most);
  for (std::size_t r = 0; r < nodes.size(); ++r)
    if (nodes[r] != nodes[r - r % static_cast<std::size_t>(*least)])
      fail_config(
          "hsdp shards inside each node, but rank {} is on another node than rank {}: place neighbouring ranks on the "
          "same node (mpirun --map-by slot, srun --distribution=block), or set hsdp_group_size",
          r, r - r % static_cast<std::size_t>(*least));
  return *least;
}

bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh) {
  // A partial gradient, once summed, is the same on all ranks of the axis. The spec knows the first holder along the tensor axis.
  if (param.placement(comm::Axis::pipeline) != model::GradPlacement::sharded && mesh.coordinate(comm::Axis::pipeline) != 0)
    return false;
  return param.first_holder;
}

}  // namespace qft::parallel

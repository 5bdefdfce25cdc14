#include "qft/parallel/layout.h"

#include "qft/comm/device_communicator.h"
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <algorithm>

namespace qft::parallel {
namespace {

/// Returns the number of ranks per node. Throws ConfigError unless all nodes have the same number and the ranks of a node are
/// neighbours.
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

}  // namespace

comm::Degrees degrees_of(comm::Communicator& world, const Strategy& strategy, std::int64_t group) {
  if (!strategy.sharded()) return {.replicate = world.size(), .shard = 1};
  if (!strategy.grouped) return {.replicate = 1, .shard = world.size()};
  const int size = group > 0 ? static_cast<int>(std::min<std::int64_t>(group, 1 << 30)) : ranks_of_a_node(world);
  if (world.size() % size != 0)
    fail_config("hsdp_group_size {} does not divide the {} ranks: start a multiple of {} ranks, or change it", size, world.size(),
                size);
  return {.replicate = world.size() / size, .shard = size};
}

Layout::Layout(comm::Communicator& world, c10::Device device, const Strategy& strategy, std::int64_t group,
               const Offload& offload)
    : strategy_(with_offload(strategy, offload)), offload_(offload) {
  const auto degrees = degrees_of(world, strategy, group);
  mesh_ = std::make_unique<comm::Mesh>(world.host(), degrees, [device](std::unique_ptr<comm::Communicator> host) {
    return comm::make_device_communicator(*host, device, host->name());
  });
}

bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh) {
  // A partial gradient, once summed, is the same on all ranks of the axis, like a replicated one.
  for (const comm::Axis axis : {comm::Axis::pipeline, comm::Axis::context, comm::Axis::tensor})
    if (param.placement(axis) != model::GradPlacement::sharded && mesh.coordinate(axis) != 0) return false;
  return true;
}

std::string Layout::describe() const {
  std::string text = fmt::format("{}: {}", strategy_.name, mesh_->describe());
  if (!offload_.any()) return text;
  text += "; offloaded to host memory:";
  if (offload_.optimizer) text += " optimizer";
  if (offload_.weights) text += " weights";
  if (offload_.activations) text += " activations";
  return text;
}

}  // namespace qft::parallel

// How a model is laid out on the ranks: how they share its state, and the groups that exchange it.
#pragma once

#include "qft/comm/mesh.h"
#include "qft/model/spec.h"
#include "qft/parallel/groups.h"
#include "qft/parallel/strategy.h"

#include <c10/core/Device.h>

namespace qft::parallel {

/// Returns the number of ranks per node: the groups of a grouped strategy without hsdp_group_size. Collective over `world`.
/// Throws ConfigError unless all nodes have the same number and the ranks of a node are neighbours.
int ranks_of_a_node(comm::Communicator& world);

/// Returns whether this rank is the first holder of a parameter's box along the axes on which ranks compute the same samples with
/// other weights (pipeline, tensor). The weight stores handle copies along the other axes.
bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh);

class Layout {
 public:
  /// `sharding`: for the ranks of `world`, which must outlive the layout.
  Layout(comm::Communicator& world, c10::Device device, const Sharding& sharding)
      : sharding_(sharding), groups_(world, device, sharding) {}

  const Strategy& strategy() const { return sharding_.strategy; }
  const Offload& offload() const { return sharding_.offload; }
  const Sharding& sharding() const { return sharding_; }
  const Groups& groups() const { return groups_; }

 private:
  Sharding sharding_;
  Groups groups_;
};

}  // namespace qft::parallel

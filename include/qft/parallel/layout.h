// How a model is laid out on the ranks: which ranks share one copy (shard group), and which hold the same slices (replica group).
#pragma once

#include "qft/comm/mesh.h"
#include "qft/model/spec.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <memory>

#include <c10/core/Device.h>

namespace qft::parallel {

/// Returns the number of ranks per node: the groups of a grouped strategy without hsdp_group_size. Collective over `world`.
/// Throws ConfigError unless all nodes have the same number and the ranks of a node are neighbours.
int ranks_of_a_node(comm::Communicator& world);

/// Returns whether this rank is the first holder of a parameter's box along the axes on which ranks compute the same model
/// (pipeline, context, tensor). The weight stores handle copies along the replicate and shard axes.
bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh);

class Layout {
 public:
  /// `sharding`: for the ranks of `world`. Collective over `world`, which must outlive the layout.
  Layout(comm::Communicator& world, c10::Device device, const Sharding& sharding);

  const Strategy& strategy() const { return sharding_.strategy; }
  const Offload& offload() const { return sharding_.offload; }
  /// For device buffers: the ranks that share one copy (this rank alone if nothing is sharded).
  comm::Communicator& shard() const { return mesh_->group(comm::Axis::shard); }
  /// The ranks that hold the same slices as this rank (all ranks if nothing is sharded).
  comm::Communicator& replicate() const { return mesh_->group(comm::Axis::replicate); }
  /// For device buffers: the ranks that share matrices.
  comm::Communicator& tensor() const { return mesh_->group(comm::Axis::tensor); }
  const comm::Mesh& mesh() const { return *mesh_; }
  const Sharding& sharding() const { return sharding_; }

 private:
  Sharding sharding_;
  std::unique_ptr<comm::Mesh> mesh_;
};

}  // namespace qft::parallel

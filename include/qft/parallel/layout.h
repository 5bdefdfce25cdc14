// How a model is laid out on the ranks: which ranks share one copy (shard group), and which hold the same slices (replica group).
#pragma once

#include "qft/comm/mesh.h"
#include "qft/model/spec.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace qft::parallel {

/// Returns how many ranks share one copy and how many hold the same slices. Collective for a grouped strategy with `group` 0.
/// Throws ConfigError as Layout does.
comm::Degrees degrees_of(comm::Communicator& world, const Strategy& strategy, std::int64_t group);

/// Returns whether this rank is the first holder of a parameter's box along the axes on which ranks compute the same model
/// (pipeline, context, tensor). The weight stores handle copies along the replicate and shard axes.
bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh);

class Layout {
 public:
  /// Collective over `world`, which must outlive the layout. `group`: ranks that share one copy under a grouped strategy; 0: the
  /// ranks of a node. Throws ConfigError if the ranks cannot be divided into such groups.
  Layout(comm::Communicator& world, c10::Device device, const Strategy& strategy, std::int64_t group,
         const Offload& offload = {});

  /// The strategy as the store runs it: see with_offload().
  const Strategy& strategy() const { return strategy_; }
  const Offload& offload() const { return offload_; }
  /// For device buffers: the ranks that share one copy (this rank alone if nothing is sharded).
  comm::Communicator& shard() const { return mesh_->group(comm::Axis::shard); }
  /// The ranks that hold the same slices as this rank (all ranks if nothing is sharded).
  comm::Communicator& replicate() const { return mesh_->group(comm::Axis::replicate); }
  const comm::Mesh& mesh() const { return *mesh_; }
  /// Describes the layout: "zero3: 8 ranks = replicate 2 x shard 4; offloaded to host memory: optimizer".
  std::string describe() const;

 private:
  Strategy strategy_;
  Offload offload_;
  std::unique_ptr<comm::Mesh> mesh_;
};

}  // namespace qft::parallel

// How a model is laid out on the ranks: which ranks share one copy (shard group), and which hold the same slices (replicas).
#pragma once

#include "qft/comm/mesh.h"
#include "qft/model/spec.h"
#include "qft/parallel/strategy.h"

#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace qft::parallel {

/// How many ranks share one copy and how many hold the same slices. Collective for a grouped strategy with `group` 0.
/// Throws ConfigError as Layout does.
comm::Degrees degrees_of(comm::Communicator& world, const Strategy& strategy, std::int64_t group);

/// Whether this rank is the first of those that hold the same box of a parameter along the axes on which ranks compute the same
/// model (pipeline, context, tensor). Copies along replicate and shard are the weight stores' affair.
bool is_first_holder(const model::ParamSpec& param, const comm::Mesh& mesh);

class Layout {
 public:
  /// Collective over `world`, which must outlive the layout. `group`: ranks that share one copy under a grouped
  /// strategy; 0: the ranks of a node. Throws ConfigError if the ranks cannot be divided into such groups.
  Layout(comm::Communicator& world, c10::Device device, const Strategy& strategy, std::int64_t group,
         const Offload& offload = {});

  /// As the store runs it: see with_offload().
  const Strategy& strategy() const { return strategy_; }
  const Offload& offload() const { return offload_; }
  /// For buffers of the device: the ranks that share one copy (this rank alone where nothing is sharded) ...
  comm::Communicator& shard() const { return mesh_->group(comm::Axis::shard); }
  /// ... and those that hold the same slices as this rank (all ranks where nothing is sharded).
  comm::Communicator& replicate() const { return mesh_->group(comm::Axis::replicate); }
  const comm::Mesh& mesh() const { return *mesh_; }
  /// "zero3: 8 ranks = replicate 2 x shard 4; offloaded to host memory: optimizer"
  std::string describe() const;

 private:
  Strategy strategy_;
  Offload offload_;
  std::unique_ptr<comm::Mesh> mesh_;
};

}  // namespace qft::parallel

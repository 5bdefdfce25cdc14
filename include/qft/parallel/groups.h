// The groups of ranks that exchange something, by what they are for: the one place that makes a run's communicators.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/comm/mesh.h"
#include "qft/parallel/strategy.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <c10/core/Device.h>

namespace qft::parallel {

/// A row of the table in groups.cpp.
enum class Purpose : std::uint8_t { all, data, slices, copies, context, tensor, owners };
inline constexpr std::size_t kPurposes = 7;

/// Returns this rank's place among the data ranks of `ranks` ranks, which is known before the strategy. Ranks that share
/// sequences or matrices are neighbours and have one data rank. Throws ConfigError if `ranks` does not divide by their number.
comm::Place data_place(int rank, int ranks, int context_ranks, int tensor_ranks);

/// Returns the ranks of the group that Groups makes of `sharding` for this purpose.
int group_size(Purpose purpose, const Sharding& sharding);

/// Returns how many groups of several ranks a model laid out like this makes for device buffers; `optimizer`: those of an update
/// included. Each has a communicator with memory of its own (comm::device_group_bytes).
int num_device_groups(const Sharding& sharding, bool optimizer);

/// The groups of this rank. A group is made at its first use, which is therefore collective over all ranks; a group of one rank
/// sends nothing. Call from one thread.
class Groups {
 public:
  /// `world`: all ranks; must outlive the groups. Throws ConfigError if `sharding` is for another number of ranks.
  Groups(comm::Communicator& world, c10::Device device, const Sharding& sharding);

  /// All ranks, for host memory: the end of a step, votes to stop, errors, saving.
  comm::Communicator& all() const { return group(Purpose::all); }
  /// One rank of each data rank, for host memory. Its rank and size divide samples: batches, evaluations, answers, learning rate.
  comm::Communicator& data() const { return group(Purpose::data); }
  /// The ranks that share one copy of the weights, for device buffers: gathers of weights, reduce-scatters of gradients. Context
  /// ranks hold terms of the same gradients, so they have slices of the copy too. This rank alone if nothing is sharded.
  comm::Communicator& slices() const { return group(Purpose::slices); }
  /// The ranks that hold the same slice and add up its gradient, for device buffers.
  comm::Communicator& copies() const { return group(Purpose::copies); }
  /// The ranks that share sequences, for device buffers: exchanges of heads, sums of the head's values.
  comm::Communicator& context() const { return group(Purpose::context); }
  /// The ranks that share matrices, for device buffers: partial sums of rows.
  comm::Communicator& tensor() const { return group(Purpose::tensor); }
  /// The ranks that together hold one copy of the trained tensors, for device buffers: the optimizer's owners. Tensor ranks are
  /// neighbours, in each slice. It is slices() if no ranks share matrices.
  comm::Communicator& owners() const { return mesh_.degree(comm::Axis::tensor) == 1 ? slices() : group(Purpose::owners); }

  /// True on the lead rank of a data rank: its loss, metrics and values count. It has the last stage, and is the first of the
  /// ranks that share sequences and matrices.
  bool is_lead() const;
  /// Replaces `values` (host memory) by their sum over the lead ranks of all data ranks; other ranks' values are ignored. All
  /// ranks get the same bits. Collective.
  void sum_of_data_ranks(std::span<double> values) const;
  const comm::Mesh& mesh() const { return mesh_; }

 private:
  comm::Communicator& group(Purpose purpose) const;
  std::unique_ptr<comm::Communicator> make(Purpose purpose, const comm::Axes& axes) const;

  comm::Communicator& world_;
  c10::Device device_;
  bool sharded_;
  comm::Mesh mesh_;
  mutable std::array<std::unique_ptr<comm::Communicator>, kPurposes> groups_;
};

}  // namespace qft::parallel

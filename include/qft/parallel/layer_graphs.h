// Layers as graphs: one launch in place of some thirty kernels each, where the host queues kernels no faster than the
// device runs them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "qft/device/graph.h"
#include "qft/parallel/bucket.h"
#include "qft/parallel/layer_call.h"

namespace qft::parallel {

/// The bucket of a micro-batch.
Bucket bucket_of(const model::MicroInput& in);

/// Runs calls as graphs, without dropout, for micro-batches in numbered slots. A graph stands for what a layer does in
/// one direction for one slot and bucket. The first call runs kernel by kernel, the second one is captured, later ones replay
/// that, for as long as everything lies where it lay; where something has moved it starts over.
class LayerGraphs {
 public:
  /// Shapes of micro-batches that a slot keeps graphs of; above that those go which were not used for longest.
  static constexpr std::size_t kBuckets = 16;

  /// Of calls, since the start.
  struct Counts {
    std::int64_t by_kernels = 0, captured = 0, replayed = 0;  ///< captured ones are replayed at once, and count in both
    std::int64_t moved = 0;      ///< graphs given up because something had moved
    std::int64_t forgotten = 0;  ///< graphs given up because their shape was not used for long
    /// Where so many are given up.
    bool costs_more_than_it_saves() const { return moved + forgotten > 500 && replayed < 8 * (moved + forgotten); }
  };

  /// `transformer` must outlive it.
  explicit LayerGraphs(model::Transformer& transformer);
  ~LayerGraphs();

  /// The micro-batch that a slot is to run, padded to its bucket, in memory of the slot and the bucket; valid until the slot's
  /// next one. Without identities, as there is no dropout. The rows added are a sequence of their own without labels, whose
  /// gradients are exactly zero. Queues copies, does not wait for them.
  const model::MicroInput& admit(std::size_t slot, const model::MicroInput& in);

  /// Runs `call` on the slot's micro-batch.
  void run(std::size_t slot, const LayerCall& call);

  const Counts& counts() const { return counts_; }

 private:
  /// Of everything that a call uses, but for the workspace.
  using Addresses = std::vector<const void*>;
  struct Recorded {
    Addresses addresses;  ///< empty until it has run with these
    ops::Workspace::Places workspace;
    std::unique_ptr<device::Graph> graph;
  };
  struct Shape {
    model::MicroInput input;
    std::vector<Recorded> calls;  ///< by layer, forward and backward
    std::uint64_t used = 0;
  };
  struct Slot {
    std::map<Bucket, std::unique_ptr<Shape>> shapes;
    Shape* current = nullptr;
  };

  Shape& shape_of(Slot& slot, const Bucket& bucket);
  void forget_oldest(Slot& slot);
  Addresses addresses_of(const LayerCall& call) const;
  void start_over(Recorded& recorded, const LayerCall& call, const Addresses& addresses, const model::MicroInput& in);

  model::Transformer& transformer_;
  device::GraphPool pool_;
  std::vector<Slot> slots_;
  Counts counts_;
  std::uint64_t clock_ = 0;
  bool warned_ = false;
};

}  // namespace qft::parallel

// Layers as CUDA graphs: one launch instead of about thirty kernel launches per layer. For models so small that launching takes
// longer than computing.
#pragma once

#include "qft/device/graph.h"
#include "qft/parallel/graph_shape.h"
#include "qft/parallel/layer_call.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace qft::parallel {

/// Returns the padded shape of a micro-batch.
GraphShape graph_shape_of(const model::MicroInput& in);

/// Runs calls as graphs, without dropout, for micro-batches in numbered places. There is one graph per layer, direction, place
/// and shape. The first call runs kernel by kernel, the second is captured, and later calls replay the graph while all memory
/// keeps its addresses. If an address changes, it starts over.
class LayerGraphs {
 public:
  /// Number of micro-batch shapes for which a place keeps graphs; the least recently used shape goes first.
  static constexpr std::size_t kShapes = 16;

  /// Numbers of calls and graphs since the start.
  struct Counts {
    std::int64_t uncaptured = 0, captured = 0, replayed = 0;  ///< a captured call is replayed at once and counts in both
    std::int64_t moved = 0;                                   ///< graphs discarded because memory had moved
    std::int64_t evicted = 0;  ///< graphs discarded because their shape was the least recently used
    /// True if too many graphs are discarded.
    bool is_unprofitable() const { return moved + evicted > 500 && replayed < 8 * (moved + evicted); }
  };

  /// `transformer` must outlive this object.
  explicit LayerGraphs(model::Transformer& transformer);
  ~LayerGraphs();

  /// Copies a micro-batch into a place, padded to its graph shape. Returns the padded copy, valid until the place's next
  /// micro-batch. The copy has no row identities, because there is no dropout. The padding rows form a separate sequence without
  /// labels, so their gradients are exactly zero. Queues copies and does not wait for them.
  const model::MicroInput& admit(std::size_t place, const model::MicroInput& in);

  /// Runs `call` on the place's micro-batch.
  void run(std::size_t place, const LayerCall& call);

  const Counts& counts() const { return counts_; }

 private:
  /// Addresses of all tensors that a call uses, except those in the workspace.
  using Addresses = std::vector<const void*>;
  struct RecordedCall {
    Addresses addresses;                        ///< empty until the call has run with these addresses
    ops::Workspace::BufferAddresses workspace;  ///< locations of its scratch memory in that run
    std::unique_ptr<device::Graph> graph;
  };
  struct ShapeGraphs {
    model::MicroInput input;
    std::vector<RecordedCall> calls;  ///< by layer, forward and backward
    std::uint64_t used = 0;
  };
  struct Place {
    std::map<GraphShape, std::unique_ptr<ShapeGraphs>> shapes;
    ShapeGraphs* current = nullptr;
  };

  ShapeGraphs& graphs_for(Place& place, const GraphShape& shape);
  void evict_oldest(Place& place);
  Addresses addresses_of(const LayerCall& call) const;
  void start_over(RecordedCall& recorded, const LayerCall& call, const Addresses& addresses, const model::MicroInput& in);

  model::Transformer& transformer_;
  device::GraphPool pool_;
  std::vector<Place> places_;
  Counts counts_;
  std::uint64_t clock_ = 0;
  bool warned_ = false;
};

}  // namespace qft::parallel

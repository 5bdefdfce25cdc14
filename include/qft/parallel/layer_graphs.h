// Layers as CUDA graphs: one launch instead of about thirty kernel launches per layer. For models so small that launching takes
// longer than computing.
#pragma once

#include "qft/device/graph.h"
#include "qft/model/transformer.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace qft::parallel {

/// Returns `n` rounded up. There are eight sizes between one power of two and the next, at least 64 apart. From 512 on the
/// padding is at most an eighth of `n`.
constexpr std::int64_t padded_tokens(std::int64_t n) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  const std::int64_t step = std::max<std::int64_t>(64, power / 16);
  return (n + step - 1) / step * step;
}

/// A padded shape. The padding rows form one more sequence; the missing sequences are empty. Kernels get the total row count as
/// the longest sequence length, because any sequence may be that long; thread blocks beyond a sequence's end return at once.
struct GraphShape {
  std::int64_t tokens = 0, sequences = 0;
  auto operator<=>(const GraphShape&) const = default;

  /// Returns the shape for a micro-batch of `tokens` tokens in `sequences` sequences.
  static constexpr GraphShape of(std::int64_t tokens, std::int64_t sequences) {
    return {padded_tokens(tokens), static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(sequences + 1)))};
  }
};

/// One call of a layer, forward or backward, with all the memory that it uses.
struct LayerCall {
  int layer = 0;
  model::UnitBuffers flat;  ///< `weights` holds views of these buffers
  std::shared_ptr<const model::LayerWeights> weights;
  model::LayerSaved saved;
  at::Tensor y;  ///< [T, hidden]: the output that forward writes; defined for forward
  at::Tensor g;  ///< [T, hidden]: y's gradient, which backward replaces by x's; defined for backward
  bool needs_input_grad = true;
  bool counts_routing = true;                     ///< count this pass in the routing statistics
  model::ExpertRowsCallback on_expert_rows = {};  ///< for forward passes, including recomputed ones

  void run(model::Transformer& transformer, const model::MicroInput& in, const model::RandomPass& random,
           const model::RoutingLoss& routing) const {
    if (y.defined()) transformer.layer_forward(layer, *weights, in, random, y, saved, on_expert_rows);
    if (y.defined() && !g.defined() && counts_routing) transformer.observe_routing(layer, in, saved);
    if (g.defined()) transformer.layer_backward(layer, *weights, in, random, saved, g, needs_input_grad, routing);
  }
};

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

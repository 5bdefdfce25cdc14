// Micro-batches in flight: the state of each between its first action and its last.
#pragma once

#include "qft/model/arena.h"
#include "qft/model/transformer.h"
#include "qft/parallel/action.h"
#include "qft/parallel/layer_graphs.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "offloaded_activations.h"
#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// What a layer keeps for its backward pass.
struct ActivationPolicy {
  bool recompute = false;       ///< keep only the layer's input and recompute the rest
  bool offload_inputs = false;  ///< with recompute: keep the input in host memory
};

/// One micro-batch in flight in one lane. The next micro-batch in the same place reuses its arena.
class MicroInFlight {
 public:
  /// `transformer` must outlive this object.
  MicroInFlight(std::size_t place, Lane lane, const model::Transformer& transformer, const ActivationPolicy& policy);

  /// Index of this place among the places in flight.
  std::size_t place() const { return place_; }
  Lane lane() const { return lane_; }
  /// Index of the micro-batch; -1: the place is free.
  int micro() const { return micro_; }

  /// Occupies the place and allocates x() and, in training, g(). Grows `scratch` to the size that a layer needs. `in` must live
  /// until close().
  void open(int micro, const model::MicroInput& in, bool training, model::Arena& scratch);
  void close();

  const model::MicroInput& input() const { return *in_; }
  /// This rank's rows [rows, hidden]: x() is the output of the last block that ran forward; g() is its gradient, or the gradient
  /// of a lower block's output.
  const at::Tensor& x() const { return x_; }
  const at::Tensor& g() const { return g_; }

  /// Memory [count] for the gradient of the head's values, allocated at the first call, valid until close().
  const at::Tensor& grad_values(std::int64_t count);

  /// Fills in the memory of a layer's forward call, which must run at once: its output becomes x(). Tensors that no backward pass
  /// needs lie in `scratch`.
  void forward(LayerCall& call, bool needs_gradient, model::Arena& scratch);
  /// Fills in the memory of a layer's backward call. `needs_gradient`: whether the input's gradient is needed.
  void backward(LayerCall& call, bool needs_gradient, model::Arena& scratch);

  std::int64_t bytes() const { return arena_.bytes_in_use(); }

 private:
  void reserve(std::int64_t tokens, bool training, model::Arena& scratch);
  at::Tensor boundary() {
    const std::int64_t rows = transformer_.tensor().rows_of(in_->num_tokens()).room;
    return arena_.alloc({rows, transformer_.spec().config.hidden_size}, transformer_.dtype());
  }

  struct SavedLayer {
    at::Tensor x;  ///< the layer's input, if it stays on the device
    model::LayerSaved saved;
  };

  std::size_t place_;
  Lane lane_;
  const model::Transformer& transformer_;
  ActivationPolicy policy_;
  model::Arena arena_;
  OffloadedActivations offloaded_;
  std::vector<SavedLayer> layers_;
  int micro_ = -1;
  const model::MicroInput* in_ = nullptr;
  model::MicroInput input_with_angles_;  ///< copy of the input with its own rotary angles, if it needs them
  at::Tensor x_, g_, grad_values_;
  at::Tensor spare_;  ///< the second of two alternating outputs, used if layers do not keep their inputs
};

/// All micro-batches in flight, and the scratch memory that they share.
class InFlight {
 public:
  InFlight(const model::Transformer& transformer, const ActivationPolicy& policy);

  /// Returns a free place of a lane, not yet opened; adds a place if none is free.
  MicroInFlight& free_place(Lane lane);
  /// Throws Error if the micro-batch is not in flight in this lane.
  MicroInFlight& at(int micro, Lane lane);
  model::Arena& scratch() { return scratch_; }

  /// Returns the bytes of all arenas, without the scratch memory.
  std::int64_t bytes() const;

 private:
  const model::Transformer& transformer_;
  ActivationPolicy policy_;
  std::vector<std::unique_ptr<MicroInFlight>> places_;
  model::Arena scratch_;
};

}  // namespace qft::parallel

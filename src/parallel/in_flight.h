// Micro-batches in flight: what each holds between its first action and its last.
#pragma once

#include "qft/model/arena.h"
#include "qft/model/transformer.h"
#include "qft/parallel/action.h"
#include "qft/parallel/layer_call.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "offloaded_activations.h"
#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// What a layer keeps for its backward pass.
struct ActivationPolicy {
  bool recompute = false;       ///< only its input: the rest is recomputed
  bool offload_inputs = false;  ///< with recompute: the input is kept in host memory
};

/// One micro-batch in flight in one lane. Its arena is reused by the next one in the same place.
class MicroInFlight {
 public:
  /// `transformer` must outlive it.
  MicroInFlight(std::size_t place, Lane lane, const model::Transformer& transformer, const ActivationPolicy& policy);

  /// Its number among those in flight.
  std::size_t place() const { return place_; }
  Lane lane() const { return lane_; }
  /// Index of the micro-batch; -1: the place is free.
  int micro() const { return micro_; }

  /// Takes the place, and allocates x() and, in training, g(); `scratch` grows to what a layer needs. `in` must live until
  /// close().
  void open(int micro, const model::MicroInput& in, bool training, model::Arena& scratch);
  void close();

  const model::MicroInput& input() const { return *in_; }
  /// [T, hidden]: the output of the last block that ran forward; its gradient, or that of a lower block's output.
  const at::Tensor& x() const { return x_; }
  const at::Tensor& g() const { return g_; }

  /// Memory [count] for the gradient of the head's values, allocated at the first call, valid until close().
  const at::Tensor& grad_values(std::int64_t count);

  /// Fills in the memory of a layer's forward call, which must run at once: its output becomes x(). What no backward pass needs
  /// lies in `scratch`.
  void forward(LayerCall& call, bool needs_gradient, model::Arena& scratch);
  /// The same for its backward call. `needs_gradient`: whether the input's gradient is needed.
  void backward(LayerCall& call, bool needs_gradient, model::Arena& scratch);

  std::int64_t bytes() const { return arena_.held(); }

 private:
  void reserve(std::int64_t tokens, bool training, model::Arena& scratch);
  at::Tensor boundary() {
    return arena_.alloc({in_->num_tokens(), transformer_.spec().config.hidden_size}, transformer_.dtype());
  }

  struct Kept {
    at::Tensor x;  ///< the layer's input, where it stays on the device
    model::LayerSaved saved;
  };

  std::size_t place_;
  Lane lane_;
  const model::Transformer& transformer_;
  ActivationPolicy policy_;
  model::Arena arena_;
  OffloadedActivations offloaded_;
  std::vector<Kept> layers_;
  int micro_ = -1;
  const model::MicroInput* in_ = nullptr;
  model::MicroInput rotated_;  ///< a copy of it with angles of its own, where it has such
  at::Tensor x_, g_, grad_values_;
  at::Tensor spare_;  ///< the second of two outputs in turn, where no layer keeps its input
};

/// All micro-batches in flight, and the scratch memory that they share.
class InFlight {
 public:
  InFlight(const model::Transformer& transformer, const ActivationPolicy& policy);

  /// A free place of a lane, to be opened; new places are made as they are needed.
  MicroInFlight& free_place(Lane lane);
  /// Throws Error where the micro-batch is not in flight there.
  MicroInFlight& at(int micro, Lane lane);
  model::Arena& scratch() { return scratch_; }

  /// Bytes of all arenas, without the scratch memory.
  std::int64_t bytes() const;

 private:
  const model::Transformer& transformer_;
  ActivationPolicy policy_;
  std::vector<std::unique_ptr<MicroInFlight>> places_;
  model::Arena scratch_;
};

}  // namespace qft::parallel

// The code of a sub-layer: forward, decode and backward for its description (model/sublayer_spec.h).
#pragma once

#include "qft/model/config.h"
#include "qft/model/head_exchange.h"
#include "qft/model/routing.h"
#include "qft/model/row_sharing.h"
#include "qft/model/sublayer_spec.h"
#include "qft/model/weights.h"
#include "qft/ops/attention.h"
#include "qft/ops/linear.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// Tensors that a sub-layer's backward needs, allocated in an arena.
struct SubLayerSaved {
  at::Tensor x, rstd;               ///< the layer's rows [T, hidden] before the sub-layer, and its norm's statistic [T]
  std::vector<at::Tensor> tensors;  ///< as described by SubLayerSpec::saved
  std::vector<at::Tensor> lora;     ///< for each projection group: scaled x A^T; undefined without LoRA
};

/// State that earlier tokens of a sequence leave for later ones in one sub-layer.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  /// Returns true if the state can continue after its first `length` tokens as if it had never seen the others.
  virtual bool can_truncate_to(std::int64_t /*length*/) const { return true; }
  /// Returns to the start of a sequence.
  virtual void reset() {}
};

/// New tokens of one sequence in a decoding pass. They follow `past` tokens, which `state` has seen.
struct NewTokens {
  DecodeState* state = nullptr;
  std::int64_t past = 0, count = 0;
};

/// Called before the weights of experts are read, with the first row of each expert (ops::ExpertRows::begins).
using ExpertRowsCallback = std::function<void(std::span<const std::int64_t> begins)>;

/// Kernels selected for this device, as far as they determine memory use.
struct KernelChoice {
  ops::AttentionPath attention = ops::AttentionPath::cpu;
  bool plain = false;  ///< none of qft's own kernels: ops::generic::runs_generic()
  bool on_cpu() const { return attention == ops::AttentionPath::cpu; }
};

/// Inputs of a pass over T tokens, or over this rank's T rows of sequences that context ranks share.
struct LayerPass {
  at::Tensor positions;                   ///< int32 [T]: positions, or other rows of `rope`
  const ops::PackedSequences* sequences;  ///< of the micro-batch; nullptr: decoding
  ops::LoraDropout dropout;
  const ops::RopeTable& rope;
  ops::Workspace& workspace;
  at::ScalarType dtype;
  const Routing* routing = nullptr;  ///< the micro-batch's router statistics; nullptr: not observed
  RoutingLoss routing_loss = {};
  const ExpertRowsCallback* on_expert_rows = nullptr;  ///< nullptr: all experts' weights are present
  RowSharing tensor = {};                              ///< the ranks that share heads and columns
  RowSharing context = {};                             ///< the ranks that share sequences

  std::int64_t tokens() const { return positions.size(0); }
  /// Leaves out all rows except `own`. `routing` has these rows alone.
  void keep(const OwnRows& own);
  at::Tensor scratch(const ScratchSpec& spec) const {
    return workspace.get(spec.name, {spec.of_sequences ? sequences->num_rows() : tokens(), spec.columns}, dtype);
  }
};

/// Stateless except for its constructor's arguments. x [T, hidden] is the input of its first linears, out [T, hidden] the output
/// of its last linear: the norm is applied before x or after out.
class SubLayer {
 public:
  explicit SubLayer(SubLayerSpec spec) : spec_(std::move(spec)) {}
  virtual ~SubLayer() = default;
  const SubLayerSpec& spec() const { return spec_; }

  /// Computes `out` and fills `saved`.
  virtual void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& saved,
                       const at::Tensor& out) const = 0;
  /// Computes the same for new tokens, in the order of `sequences`; tensors that only backward needs may stay unfilled. Equals
  /// forward if the sub-layer does not mix tokens. Other rows in the pass do not change a row's bits if linear_forward guarantees
  /// that.
  virtual void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
                      const SubLayerSaved& saved, const at::Tensor& out) const;
  /// Adds to the gradients of `w`; writes x's gradient into gx unless `mode` is skip. `x` may be undefined if no gradient of the
  /// first linears needs it. May overwrite `saved`; leaves gout unchanged.
  virtual void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& saved,
                        const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const = 0;

  /// Adds to `routing` the router statistics of the forward pass that filled `saved`.
  virtual void observe(std::int64_t layer, const SubLayerSaved& saved, const Routing& routing) const;

  /// Creates a state for a sequence with up to `capacity` tokens; nullptr if the sub-layer does not mix tokens.
  virtual std::unique_ptr<DecodeState> make_state(std::int64_t capacity, at::ScalarType dtype, c10::Device device) const;
  /// Returns the bytes of a state per token.
  virtual std::int64_t state_bytes_per_token(at::ScalarType dtype) const;
  /// Returns the bytes of a state that do not depend on the sequence's length.
  virtual std::int64_t state_bytes(at::ScalarType dtype) const;
  /// Returns an upper bound for the scratch bytes of its operations, in addition to SubLayerSpec::scratch and the linears'
  /// scratch.
  virtual std::int64_t operation_scratch_bytes(const BatchShape& sizes, at::ScalarType dtype, bool backward,
                                               const KernelChoice& paths) const;
  /// Returns true if a captured CUDA graph also serves other sequences with the same count and maximum length.
  virtual bool can_be_captured(c10::Device device, at::ScalarType dtype) const;

 protected:
  /// Returns the exchange of heads with the context ranks.
  HeadExchange exchange(const LayerPass& pass) const {
    return {spec_.sequences, pass.context, pass.sequences->num_rows(), pass.workspace};
  }

  SubLayerSpec spec_;
};

/// Returns how the model's norms apply their weights.
ops::NormWeight norm_weight(const ModelConfig& config);

/// Creates the code of a sub-layer for a model with this configuration.
std::unique_ptr<const SubLayer> make_sublayer(const ModelConfig& config, const SubLayerSpec& spec);

}  // namespace qft::model

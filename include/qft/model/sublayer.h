// The code of a sub-layer: forward, decode and backward of what its description (model/sublayer_spec.h) says.
#pragma once

#include "qft/model/config.h"
#include "qft/model/routing.h"
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

/// What a sub-layer's backward needs. Tensors of an arena.
struct SubLayerSaved {
  at::Tensor x, rstd;               ///< the layer's rows [T, hidden] before it, and the statistic [T] of its norm
  std::vector<at::Tensor> tensors;  ///< as SubLayerSpec::saved says
  std::vector<at::Tensor> lora;     ///< of each group of linears: scaled x A^T, undefined without LoRA
};

/// What the earlier tokens of a sequence leave to later ones in one sub-layer.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
  /// Whether it can go on after its first `length` tokens as if the others had never come.
  virtual bool can_go_back_to(std::int64_t /*length*/) const { return true; }
  /// Back to the start of a sequence.
  virtual void forget() {}
};

/// New tokens of one sequence in a decoding pass: they follow `past` ones, which `state` knows.
struct NewTokens {
  DecodeState* state = nullptr;
  std::int64_t past = 0, count = 0;
};

/// Told, before the weights of experts are read, where the rows of each begin (ops::ExpertRows::begins).
using NeedExperts = std::function<void(std::span<const std::int64_t> begins)>;

/// By what operations are computed, as far as memory depends on it.
struct OperationPaths {
  ops::AttentionPath attention = ops::AttentionPath::cpu;
  bool plain = false;  ///< no kernels of our own: ops::generic::takes()
  bool on_cpu() const { return attention == ops::AttentionPath::cpu; }
};

/// What a pass over T tokens computes with.
struct LayerPass {
  const at::Tensor& positions;            ///< int32 [T], or other rows of `rope`
  const ops::PackedSequences* sequences;  ///< of a micro-batch; nullptr: decoding
  ops::LoraDropout dropout;
  const ops::RopeTable& rope;
  ops::Workspace& workspace;
  at::ScalarType dtype;
  const Routing* routing = nullptr;  ///< of the micro-batch, where it is observed
  RoutingLoss routing_loss = {};
  const NeedExperts* need_experts = nullptr;  ///< where some may not be here yet

  std::int64_t tokens() const { return positions.size(0); }
  at::Tensor scratch(const ScratchSpec& spec) const { return workspace.get(spec.name, {tokens(), spec.columns}, dtype); }
};

/// Stateless but for what it was built from. x [T, hidden] is what its entries read, out [T, hidden] what its last linear gives:
/// the norm comes before x or after out.
class SubLayer {
 public:
  explicit SubLayer(SubLayerSpec spec) : spec_(std::move(spec)) {}
  virtual ~SubLayer() = default;
  const SubLayerSpec& spec() const { return spec_; }

  /// Fills `saved`.
  virtual void forward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& saved,
                       const at::Tensor& out) const = 0;
  /// The same for new tokens, in the order of `sequences`; what belongs to backward alone may stay unfilled. Where tokens do
  /// not mix, it is forward. A row has the same bits in any company where linear_forward gives that.
  virtual void decode(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, std::span<const NewTokens> sequences,
                      const SubLayerSaved& saved, const at::Tensor& out) const;
  /// Adds to the gradients of `w`; writes that of x into gx unless `mode` is skip. `x` may be undefined where no gradient of
  /// the entries needs it. May overwrite `saved`; leaves gout.
  virtual void backward(const SubLayerWeights& w, const at::Tensor& x, const LayerPass& pass, const SubLayerSaved& saved,
                        const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode) const = 0;

  /// Adds to `routing` what a router did in the forward pass that filled `saved`.
  virtual void observe(std::int64_t layer, const SubLayerSaved& saved, const Routing& routing) const;

  /// For a sequence of up to `capacity` tokens; nullptr where tokens do not mix.
  virtual std::unique_ptr<DecodeState> make_state(std::int64_t capacity, at::ScalarType dtype, c10::Device device) const;
  /// Bytes of that for one token.
  virtual std::int64_t state_bytes_per_token(at::ScalarType dtype) const;
  /// Bytes of it for a sequence of any length.
  virtual std::int64_t state_bytes(at::ScalarType dtype) const;
  /// Bytes of scratch that its operations take besides SubLayerSpec::scratch and that of linears, at most.
  virtual std::int64_t operation_scratch_bytes(const ops::PackedSizes& sizes, at::ScalarType dtype, bool backward,
                                               const OperationPaths& paths) const;
  /// Whether work captured in a graph serves other sequences of the same number and longest length.
  virtual bool can_be_captured(c10::Device device, at::ScalarType dtype) const;

 protected:
  SubLayerSpec spec_;
};

/// How a model's norms multiply with their weights.
ops::NormWeight norm_weight(const ModelConfig& config);

/// The code of a sub-layer of a model with this configuration.
std::unique_ptr<const SubLayer> make_sublayer(const ModelConfig& config, const SubLayerSpec& spec);

}  // namespace qft::model

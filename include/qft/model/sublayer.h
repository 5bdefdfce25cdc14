// A sub-layer, out = x + sub(norm(x)), as one description: its parameters, what it keeps for backward, its scratch and its cost
// are data; forward, decode and backward are its code. Loading, stores, adapters, memory plan and simulation read the data. A
// new kind is a file in src/model/sublayers and a row of its table (sublayers/kinds.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/model/ops/attention.h"
#include "qft/model/ops/linear.h"
#include "qft/model/ops/rope.h"
#include "qft/model/ops/workspace.h"
#include "qft/model/weights.h"

namespace qft::model {

/// A linear module of a layer.
struct LinearSpec {
  std::string name;  ///< as PEFT's target_modules has it: "q_proj"
  std::string path;  ///< in the layer, as transformers has it: "self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  bool bias = false;
};

/// Parameters that lie next to each other in the flat buffers: linears of one input, computed as one product (weights, then
/// biases, then LoRA's factors), or a single vector.
struct ParamGroup {
  std::vector<LinearSpec> linears = {};
  std::string vector = {};  ///< its path, where there are no linears: "self_attn.q_norm.weight"
  std::int64_t size = 0;

  std::int64_t in() const { return linears.front().in; }
  std::int64_t out() const;
};

/// A tensor [T, columns] that forward leaves to backward, or [columns, T].
struct SavedSpec {
  std::int64_t columns = 0;
  bool statistic = false;   ///< in statistics_dtype(), else in compute dtype
  bool transposed = false;  ///< [columns, T]
};

/// Memory [T, columns] in compute dtype that nothing outside of one pass of one sub-layer reads. Sub-layers share it by name.
struct ScratchSpec {
  const char* name;
  std::int64_t columns = 0;
  bool backward_only = false;
};

/// What a pass costs beside the products of the linears, which follow from their sizes.
struct SubLayerCost {
  double values = 0;           ///< elements read and written by operations bound by memory, of a token
  double pair_operations = 0;  ///< floating-point operations of a pair of tokens, one of which sees the other
};

struct SubLayerSpec {
  std::string norm;                ///< path of the norm's weight [hidden]
  std::vector<ParamGroup> params;  ///< in the order of the flat buffers, after the norm
  int entries = 1;                 ///< so many first groups of linears read the norm's output
  std::vector<SavedSpec> saved;    ///< besides its input, the norm's statistic and LoRA's x A^T
  std::vector<ScratchSpec> scratch;
  SubLayerCost forward, backward;  ///< with the norm and the residual's sum; backward without what is computed again

  /// The groups that are linears, in order.
  std::vector<const ParamGroup*> linears() const;
};

/// What a sub-layer's backward needs. Tensors of an arena.
struct SubLayerSaved {
  at::Tensor x, rstd;               ///< its input [T, hidden] and the statistic [T] of its norm
  std::vector<at::Tensor> tensors;  ///< as SubLayerSpec::saved says
  std::vector<at::Tensor> lora;     ///< of each group of linears: scaled x A^T, undefined without LoRA
};

/// What the earlier tokens of a sequence leave to later ones in one sub-layer.
class DecodeState {
 public:
  virtual ~DecodeState() = default;
};

/// New tokens of one sequence in a decoding pass: they follow `past` ones, which `state` knows.
struct NewTokens {
  DecodeState* state = nullptr;
  std::int64_t past = 0, count = 0;
};

/// What a pass over T tokens computes with.
struct LayerPass {
  const at::Tensor& positions;             ///< int32 [T]
  const ops::PackedSequences* sequences;   ///< of a micro-batch; nullptr: decoding
  ops::LoraDropout dropout;
  const ops::RopeTable& rope;
  ops::Workspace& workspace;
  at::ScalarType dtype;

  std::int64_t tokens() const { return positions.size(0); }
  at::Tensor scratch(const ScratchSpec& spec) const { return workspace.get(spec.name, {tokens(), spec.columns}, dtype); }
};

/// Stateless but for what it was built from. x [T, hidden] is the norm's output, out [T, hidden] what is added to the
/// sub-layer's input.
class SubLayer {
 public:
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

  /// For a sequence of up to `capacity` tokens; nullptr where tokens do not mix.
  virtual std::unique_ptr<DecodeState> make_state(std::int64_t capacity, at::ScalarType dtype, c10::Device device) const;
  /// Bytes of that for one token.
  virtual std::int64_t state_bytes_per_token(at::ScalarType dtype) const;
  /// Bytes of scratch that its operations take besides SubLayerSpec::scratch and that of linears, at most.
  virtual std::int64_t operation_scratch_bytes(std::int64_t tokens, std::int64_t sequences, at::ScalarType dtype, bool backward,
                                               bool on_cpu) const;
  /// Whether work captured in a graph serves other sequences of the same number and longest length.
  virtual bool can_be_captured(c10::Device device, at::ScalarType dtype) const;

 protected:
  SubLayerSpec spec_;
};

}  // namespace qft::model

// The blocks of a decoder-only transformer with explicit forward and backward. Stateless but for scratch memory: weights
// come in as views, activations live in the caller's arena.
#pragma once

#include "qft/model/arena.h"
#include "qft/model/routing.h"
#include "qft/model/sequence_state.h"
#include "qft/model/spec.h"
#include "qft/model/sublayer.h"
#include "qft/model/weights.h"
#include "qft/ops/head.h"
#include "qft/ops/rope.h"
#include "qft/ops/value_head.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// The angles by which the rows of a pass are rotated.
struct Angles {
  at::Tensor rows;  ///< int32 [T]: the row of `table` for each
  ops::RopeTable table;
};

/// Tokens of a sequence in a pass: `count` from position `first` on, the last of those that it has so far.
struct TokenRange {
  std::int64_t first = 0, count = 0;
};

/// A micro-batch on the device: T rows of one or more sequences, flat. A row is a token, or one that two sequences share.
struct MicroInput {
  at::Tensor tokens;     ///< int32 [T]
  at::Tensor positions;  ///< int32 [T], restarting at 0 in each sequence
  ops::PackedSequences sequences;
  ops::HeadLabels labels;                   ///< rows that predict, and what
  ops::RowIdentity identity;                ///< for dropout and noise; of a shared row its first sequence's
  at::Tensor lengths;                       ///< int32 [T]: tokens of the row's sequence; for noise
  std::vector<std::int32_t> label_offsets;  ///< [S + 1]: of labels, those of sequence s are [offsets[s], offsets[s + 1])
  std::vector<std::int32_t> item_offsets;  ///< [I + 1]: the same of sequences and items (a sample, a pair), which are never split
  /// Of a model whose frequencies follow a sequence's length, where it has one so long (Transformer::own_angles); else those of
  /// `positions` serve.
  std::optional<Angles> angles;
  Routing routing;                  ///< of models with experts, in training: filled by the forward passes of its layers
  at::Tensor reference;             ///< [S] fp64: the sums of its labels' log-probabilities by another model, where it was asked
  at::Tensor reference_rows;        ///< [L, E]: the labels' rows of another model as its head reads them, where they were asked
  at::Tensor reference_head;        ///< [V, E]: that head, where there are such rows
  at::Tensor label_weights;         ///< fp64 [L]: what each label counts, in data that says so; undefined: 1
  std::vector<std::uint8_t> liked;  ///< [I] whether an item's answer is liked, in data that says so
  /// [I] what a classifier is to say of each item, in data that says so: the number of its label, the numbers of those that it
  /// has, or the values of a regression.
  std::vector<std::vector<double>> classes;
  /// Rows that are computed.
  std::int64_t num_tokens() const { return tokens.size(0); }

  /// `label_positions`: indices of label tokens, ascending, none the first of its sequence (its hidden row is the one
  /// before). `samples` [S]: a number for each sequence that is its own in the whole data order. `item_offsets`: empty where each
  /// sequence is an item. `shared` [S]: so many first tokens of a sequence are those of the one before it, which have rows
  /// already (ops/shared_rows.h); labels are predicted from rows of their own sequence. Empty: no sequence's.
  static MicroInput build(std::span<const std::int32_t> tokens, std::span<const std::int32_t> cu_seqlens,
                          std::span<const std::int32_t> label_positions, std::span<const std::int64_t> samples,
                          c10::Device device, std::span<const std::int32_t> item_offsets = {},
                          std::span<const std::int32_t> shared = {});
};

/// What a layer's backward needs, of each of its sub-layers.
struct LayerSaved {
  std::vector<SubLayerSaved> sublayers;

  /// The layer's input.
  const at::Tensor& x() const { return sublayers.front().x; }
};

/// What is random in this pass: off (0) outside training.
struct RandomPass {
  double lora_dropout = 0.0;
  double noise_alpha = 0.0;  ///< NEFTune's
  std::uint64_t seed = 0, step = 0;
};

class Transformer {
 public:
  Transformer(const ModelSpec& spec, at::ScalarType dtype, c10::Device device);

  /// Rows of logits that the head holds at a time; 0 (the default): ops::head_chunk_rows().
  void hold_logits(std::int64_t rows) { head_rows_ = rows; }

  /// Must cover the longest sequence before a forward; grows the rotary table. That of a model with dynamic scaling ends where
  /// sequences have frequencies of their own.
  void ensure_positions(std::int64_t length);
  /// The angles of these rows in memory of `arena`, where one of the sequences is so long that it has frequencies of its own (it
  /// has those of a model that sees it alone); else nothing. Queues a copy, does not wait for it.
  std::optional<Angles> own_angles(std::span<const TokenRange> sequences, Arena& arena) const;
  /// Those of a micro-batch, whose sequences must not share rows then.
  std::optional<Angles> own_angles(const MicroInput& in, Arena& arena) const;

  /// y [T, hidden].
  void embedding_forward(const Weight& table, const MicroInput& in, const at::Tensor& y);
  /// Adds NEFTune's noise to the embeddings y [>= T, hidden] of T tokens; gradients pass it as it is.
  void add_noise(const MicroInput& in, const RandomPass& random, const at::Tensor& y);
  /// Adds to table.grad.
  void embedding_backward(const Weight& table, const MicroInput& in, const at::Tensor& gy);

  /// Memory for layer_forward's result with input x [T, hidden]: x itself, and uninitialised tensors of `arena` for the rest.
  LayerSaved room_for(int layer, const LayerWeights& w, const at::Tensor& x, Arena& arena) const;
  /// y = layer(saved.x()); fills the rest of `saved`, of room_for(). y [T, hidden] may lie anywhere but x. `need_experts`: empty
  /// where all weights are here.
  void layer_forward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random, const at::Tensor& y,
                     const LayerSaved& saved, const NeedExperts& need_experts = {});
  /// Adds to `in.routing` what the layer's routers did in a forward pass; not after one that is done again.
  void observe_routing(int layer, const MicroInput& in, const LayerSaved& saved) const;
  /// `g` [T, hidden] holds the gradient of y and receives that of x (undefined contents if !needs_input_grad).
  /// Adds to the weights' gradients; overwrites parts of what `saved` names. `routing`: of the losses that `in.routing`, complete
  /// by then, adds to.
  void layer_backward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random, const LayerSaved& saved,
                      const at::Tensor& g, bool needs_input_grad, const RoutingLoss& routing = {});
  /// The same as layer_forward for the new tokens of sequences, one after another: `angles` are theirs. Their states are
  /// brought up to date but for SequenceState::advance().
  void layer_decode(int layer, const LayerWeights& w, const Angles& angles, std::span<const SequenceTokens> sequences,
                    const at::Tensor& y, const LayerSaved& saved);

  /// How many values the head gives: a log-probability of each label token, or Head::values of each sequence, side by side.
  std::int64_t head_values(const MicroInput& in) const;
  /// values [head_values()], fp32 (fp64 for fp64 data). `reader` sees the rows of logits.
  void head_forward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& values,
                    const ops::RowReader& reader = {});
  /// The same with gradients in one pass: grad_values is known beforehand, or `reader` fills it in; g [T, hidden] gets that of x.
  /// Undefined values are not computed.
  void head_forward_backward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& grad_values,
                             const at::Tensor& values, const at::Tensor& g, const ops::RowReader& reader = {});
  /// The labels' rows after the final norm, as the head multiplies them: rows [L, hidden].
  void head_rows(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& rows);
  /// Final norm and all logits of chosen rows: [rows.numel(), vocab], for decoding and comparisons; valid until the next call.
  at::Tensor logits(const Weight& norm, const Weight& table, const at::Tensor& x_rows);

  const ModelSpec& spec() const { return spec_; }
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType statistics_dtype() const { return dtype_ == at::kDouble ? at::kDouble : at::kFloat; }
  c10::Device device() const { return workspace_.device(); }
  ops::Workspace& workspace() { return workspace_; }
  /// By position.
  const ops::RopeTable& rope() const { return rope_; }

 private:
  using Code = std::vector<std::unique_ptr<const SubLayer>>;
  const Code& sublayers(int layer) const { return code_.at(static_cast<std::size_t>(layer)); }
  /// What a sub-layer computes from x, before or after a norm.
  using Branch = std::function<void(std::size_t index, const at::Tensor& x, const at::Tensor& out)>;
  void run_forward(int layer, const LayerWeights& w, const at::Tensor& y, const LayerSaved& saved, const Branch& sub);
  /// Of one sub-layer: g [T, hidden] becomes the gradient of its input, where it `goes_on`.
  void norm_before_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s,
                            const at::Tensor& g, bool goes_on);
  void norm_after_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPass& pass, const SubLayerSaved& s,
                           const at::Tensor& g, bool goes_on);
  LayerPass pass_over(int layer, const MicroInput& in, const RandomPass& random, const RoutingLoss& routing = {});
  double attention_scaling() const { return spec_.config.rope.yarn ? spec_.config.rope.yarn->attention_factor : 1.0; }
  at::Tensor scratch(const char* name, std::int64_t rows, std::int64_t columns);
  /// The hidden states that the head reads, after the final norm; what the norm's backward needs is in `rstd`.
  at::Tensor head_input(const HeadWeights& head, const at::Tensor& x, at::Tensor& rstd);

  const ModelSpec& spec_;
  std::vector<Code> code_;  ///< by layer
  at::ScalarType dtype_;
  ops::NormWeight norm_;
  ops::Workspace workspace_;
  ops::RopeTable rope_;
  std::int64_t head_rows_ = 0;
};

}  // namespace qft::model

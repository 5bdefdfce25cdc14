// The blocks of a decoder-only transformer with explicit forward and backward. Stateless except for scratch memory: weights come
// in as views, activations live in the caller's arena.
#pragma once

#include "qft/core/columns.h"
#include "qft/model/arena.h"
#include "qft/model/routing.h"
#include "qft/model/row_sharing.h"
#include "qft/model/sequence_state.h"
#include "qft/model/spec.h"
#include "qft/model/sublayer.h"
#include "qft/model/weights.h"
#include "qft/ops/head.h"
#include "qft/ops/rope.h"
#include "qft/ops/vocabulary.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// A column of a micro-batch on its device (core/columns.h).
struct InputColumn {
  IndexSpace space = IndexSpace::item;
  at::Tensor values = {};  ///< [entries, ...] on the device; undefined if entries are lists
  Column lists = {};       ///< entries that are lists, in host memory
  at::Tensor head = {};  ///< [V, E] if `values` [entries, E] are rows of hidden states of another model: its head; else undefined
};

/// By name. Tensors are shared between copies.
class InputColumns {
 public:
  void set(std::string_view name, InputColumn column) { columns_.insert_or_assign(std::string(name), std::move(column)); }
  bool has(std::string_view name) const { return columns_.contains(name); }
  /// Returns the column. Throws Error with its name if the micro-batch lacks it.
  const InputColumn& at(std::string_view name) const;
  /// Returns the column's values; undefined if the micro-batch lacks the column.
  at::Tensor find(std::string_view name) const;

 private:
  std::map<std::string, InputColumn, std::less<>> columns_;
};

/// The angles that rotate the rows of a pass.
struct Angles {
  at::Tensor rows;  ///< int32 [T]: the index in `table` of each row
  ops::RopeTable table;
};

/// New tokens of a sequence in a pass: `count` tokens from position `first` on, the last ones so far.
struct TokenRange {
  std::int64_t first = 0, count = 0;
};

/// A micro-batch on the device: T rows of one or more sequences, flat. A row is a token, or a token that two sequences share. If
/// context ranks share the rows, `tokens`, `positions`, `identity` and `lengths` have this rank's; everything else is of the
/// whole micro-batch.
struct MicroInput {
  at::Tensor tokens;     ///< int32 [T]
  at::Tensor positions;  ///< int32 [T], restarting at 0 in each sequence
  ops::PackedSequences sequences;
  ops::HeadLabels labels;                   ///< the rows that predict labels, and their labels
  std::vector<std::int32_t> label_rows;     ///< labels.rows in host memory
  ops::RowIdentity identity;                ///< for dropout and noise; a shared row has its first sequence's identity
  at::Tensor lengths;                       ///< int32 [T]: length of the row's sequence; for noise
  std::int64_t first_row = 0;               ///< the row of the whole micro-batch that is the first one here
  std::vector<std::int32_t> label_offsets;  ///< [S + 1]: the labels of sequence s are [offsets[s], offsets[s + 1])
  /// [I + 1]: likewise, the sequences of each item (a sample, a pair); items are never split.
  std::vector<std::int32_t> item_offsets;
  /// Set if the model's frequencies depend on a sequence's length and one sequence is long enough (Transformer::dynamic_angles);
  /// else the angles follow from `positions`.
  std::optional<Angles> angles;
  Routing routing;       ///< for models with experts in training; filled by the layers' forward passes
  InputColumns columns;  ///< for the objective
  /// Returns the number of rows that this rank computes.
  std::int64_t num_tokens() const { return tokens.size(0); }
  /// Leaves out the rows of other context ranks. Call once, after build().
  void keep_rows_of(const RowSharing& context);
  /// Returns the number of entries that a column of this space has. Tokens count once per sequence, even if they share a row.
  std::int64_t entries(IndexSpace space) const;
  /// Adds a column to `columns`. Throws Error if it has another number of entries than its space.
  void set_column(std::string_view name, InputColumn column);
  /// Uploads the columns as fp64 [entries]; lists stay in host memory.
  void set_columns(const Columns& host);

  /// Uploads a micro-batch. `label_positions`: ascending indices of label tokens, none the first of its sequence (the row before
  /// a label predicts it). `samples` [S]: a number for each sequence, unique in the whole data order. `item_offsets`: empty if
  /// each sequence is an item. `shared` [S]: how many first tokens a sequence shares with the sequence before it, whose rows
  /// serve both (ops/shared_rows.h); a label is always predicted from a row of its own sequence. Empty: no sequence shares
  /// tokens.
  static MicroInput build(std::span<const std::int32_t> tokens, std::span<const std::int32_t> cu_seqlens,
                          std::span<const std::int32_t> label_positions, std::span<const std::int64_t> samples,
                          c10::Device device, std::span<const std::int32_t> item_offsets = {},
                          std::span<const std::int32_t> shared = {});
};

/// Tensors that a layer's backward needs, by sub-layer.
struct LayerSaved {
  std::vector<SubLayerSaved> sublayers;

  /// The layer's input.
  const at::Tensor& x() const { return sublayers.front().x; }
};

/// Randomness in a pass; zero outside training.
struct RandomPass {
  double lora_dropout = 0.0;
  double noise_alpha = 0.0;  ///< NEFTune's alpha
  std::uint64_t seed = 0, step = 0;
};

class Transformer {
 public:
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  /// `tensor`: the ranks that share the matrices. Between sub-layers and outside the layers, tensors [rows, hidden] of a
  /// micro-batch with T rows then have this rank's rows (OwnRows), except while decoding. `context`: the ranks that share
  /// sequences; a micro-batch has this rank's rows of them (MicroInput::keep_rows_of). All functions that take a micro-batch are
  /// collective over both. Decoding has whole sequences.
  Transformer(const ModelSpec& spec, at::ScalarType dtype, c10::Device device, const RowSharing& tensor = {},
              const RowSharing& context = {});

  /// Sets how many rows of logits the head holds at a time; 0 (the default): ops::head_chunk_rows().
  void set_logit_rows(std::int64_t rows) { head_rows_ = rows; }

  /// Grows the rotary table to `length` positions. Call with the longest sequence's length before a forward. With dynamic scaling
  /// the table ends at the length above which sequences have their own frequencies.
  void ensure_positions(std::int64_t length);
  /// Returns the rows' angles, in memory of `arena`, if some sequence is long enough to have its own frequencies; else nothing.
  /// Each sequence gets the frequencies it would have alone. Queues a copy and does not wait for it.
  std::optional<Angles> dynamic_angles(std::span<const TokenRange> sequences, Arena& arena) const;
  /// Returns the angles of a micro-batch, whose sequences must not share rows if some sequence has its own frequencies.
  std::optional<Angles> dynamic_angles(const MicroInput& in, Arena& arena) const;

  /// Looks up the embeddings y [T, hidden].
  void embedding_forward(const Weight& table, const MicroInput& in, const at::Tensor& y);
  /// Looks up the embeddings y [T, hidden] of tokens to decode, int32 [T].
  void embedding_decode(const Weight& table, const at::Tensor& tokens, const at::Tensor& y);
  /// Adds NEFTune's noise to the embeddings y [>= T, hidden] of T tokens. The noise does not change gradients.
  void add_noise(const MicroInput& in, const RandomPass& random, const at::Tensor& y);
  /// Adds to table.grad.
  void embedding_backward(const Weight& table, const MicroInput& in, const at::Tensor& gy);

  /// Returns the tensors for layer_forward's result with input x [T, hidden]: x itself, and uninitialised tensors in `arena` for
  /// the rest. `in`: the micro-batch, of which x has this rank's rows; nullptr: x has all rows, as in decoding.
  LayerSaved allocate_saved(int layer, const LayerWeights& w, const at::Tensor& x, Arena& arena,
                            const MicroInput* in = nullptr) const;
  /// Computes y = layer(saved.x()) and fills the other tensors of `saved`, which comes from allocate_saved(). y [T, hidden] must
  /// not overlap x. `on_expert_rows`: empty if all weights are present.
  void layer_forward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random, const at::Tensor& y,
                     const LayerSaved& saved, const ExpertRowsCallback& on_expert_rows = {});
  /// Adds to `in.routing` the statistics of the layer's routers in a forward pass. Do not call after a recomputed forward.
  void observe_routing(int layer, const MicroInput& in, const LayerSaved& saved) const;
  /// `g` [T, hidden] holds y's gradient and receives x's gradient (undefined contents if !needs_input_grad). Adds to the weights'
  /// gradients; may overwrite tensors of `saved`. `routing`: weights of the router losses, for which `in.routing` must be
  /// complete.
  void layer_backward(int layer, const LayerWeights& w, const MicroInput& in, const RandomPass& random, const LayerSaved& saved,
                      const at::Tensor& g, bool needs_input_grad, const RoutingLoss& routing = {});
  /// Computes layer_forward for the new tokens of sequences, one sequence after another, with their `angles`. Updates the
  /// sequences' states except for SequenceState::advance().
  void layer_decode(int layer, const LayerWeights& w, const Angles& angles, std::span<const SequenceTokens> sequences,
                    const at::Tensor& y, const LayerSaved& saved);

  /// Returns the number of values that the head computes: one log-probability per label token, or Head::values per sequence,
  /// consecutively.
  std::int64_t head_values(const MicroInput& in) const;
  /// Computes values [head_values()], fp32 (fp64 for fp64 data). `reader` sees the rows of logits.
  void head_forward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& values,
                    const ops::LogitsReader& reader = {});
  /// Computes values and gradients in one pass. grad_values is given, or filled in by `reader`; g [T, hidden] receives x's
  /// gradient. Skips `values` if undefined.
  void head_forward_backward(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& grad_values,
                             const at::Tensor& values, const at::Tensor& g, const ops::LogitsReader& reader = {});
  /// Computes rows [L, hidden]: the labels' rows after the final norm, which the head multiplies.
  void head_rows(const HeadWeights& head, const MicroInput& in, const at::Tensor& x, const at::Tensor& rows);
  /// Returns final norm and all logits of chosen rows: [rows.numel(), vocab], for decoding and comparisons; valid until the next
  /// call. Ranks that share the vocabulary get the same bits. Collective over them.
  at::Tensor logits(const Weight& norm, const Weight& table, const at::Tensor& x_rows);

  const ModelSpec& spec() const { return spec_; }
  const RowSharing& tensor() const { return tensor_; }
  const RowSharing& context() const { return context_; }
  /// Returns the seconds that the host has spent in exchanges of rows and heads.
  double exchange_seconds() const { return tensor_.seconds() + context_.seconds(); }
  at::ScalarType dtype() const { return dtype_; }
  at::ScalarType statistics_dtype() const { return dtype_ == at::kDouble ? at::kDouble : at::kFloat; }
  c10::Device device() const { return workspace_.device(); }
  ops::Workspace& workspace() { return workspace_; }
  /// Indexed by position.
  const ops::RopeTable& rope() const { return rope_; }

 private:
  using Code = std::vector<std::unique_ptr<const SubLayer>>;
  /// The pass of sub-layers that see all rows, and of those that see this rank's rows.
  struct LayerPasses {
    LayerPass on_all_rows;
    std::optional<LayerPass> on_own_rows;  ///< empty: this rank has all rows
    OwnRows own;

    bool are_same() const { return !on_own_rows; }
    const LayerPass& of(const SubLayer& sublayer) const {
      return on_own_rows && sublayer.spec().on_own_rows ? *on_own_rows : on_all_rows;
    }
    void set(const ExpertRowsCallback* on_expert_rows) {
      on_all_rows.on_expert_rows = on_expert_rows;
      if (on_own_rows) on_own_rows->on_expert_rows = on_expert_rows;
    }
  };
  const Code& sublayers(int layer) const { return code_.at(static_cast<std::size_t>(layer)); }
  /// Computes a sub-layer's output from x, before or after a norm.
  using Branch = std::function<void(std::size_t index, const at::Tensor& x, const at::Tensor& out)>;
  void run_forward(int layer, const LayerWeights& w, const at::Tensor& y, const LayerSaved& saved, const Branch& sub);
  /// For one sub-layer: turns g [T, hidden] into the gradient of its input, if `propagate` is set.
  void norm_before_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPasses& passes, const SubLayerSaved& s,
                            const at::Tensor& g, bool propagate);
  void norm_after_backward(const SubLayer& sublayer, const SubLayerWeights& w, const LayerPasses& passes, const SubLayerSaved& s,
                           const at::Tensor& g, bool propagate);
  /// SubLayer::backward() for this rank's rows of x, gout and gx.
  void sublayer_backward(const SubLayer& sublayer, const SubLayerWeights& w, const at::Tensor& x, const LayerPasses& passes,
                         const SubLayerSaved& s, const at::Tensor& gout, const at::Tensor& gx, ops::GradMode mode);
  LayerPasses passes_over(int layer, const MicroInput& in, const RandomPass& random, const RoutingLoss& routing = {});
  /// Returns scratch for the rows of all ranks, [>= rows, hidden].
  at::Tensor room_of_all(const char* name, std::int64_t rows);
  /// Returns all rows [rows, hidden], given this rank's, in scratch memory.
  at::Tensor gathered(const char* name, std::int64_t rows, const at::Tensor& own);
  double attention_scaling() const { return spec_.config.rope.yarn ? spec_.config.rope.yarn->attention_factor : 1.0; }
  at::Tensor scratch(const char* name, std::int64_t rows, std::int64_t columns);
  /// The rows of a micro-batch that its head reads: of labels, or each sequence's last one.
  struct HeadRows {
    Extent of_context = {};             ///< this context rank's, by their numbers in the micro-batch
    std::vector<std::int64_t> counts;   ///< rows of each tensor rank that shares this context rank's rows
    std::int64_t first = 0, count = 0;  ///< this rank's are [first, first + count) of the context rank's
    at::Tensor here = {};               ///< int64 [count]: their places among the rows that this rank holds
    /// Returns this rank's part of `all`, which has `width` numbers for each row.
    at::Tensor of(const at::Tensor& all, std::int64_t width) const { return all.narrow(0, first * width, count * width); }
  };
  HeadRows rows_of_head(const MicroInput& in) const;
  bool alone() const { return tensor_.alone() && context_.alone(); }
  /// Returns all rows [n, hidden] of this context rank that the head reads, given this rank's rows y. Collective over tensor().
  at::Tensor gathered_rows(const HeadRows& rows, const at::Tensor& y);
  /// Computes the values of all sequences, given the last rows y of this rank's sequences after the final norm.
  void sequence_values(const HeadWeights& head, const HeadRows& rows, const at::Tensor& y, const at::Tensor& values);
  /// Computes gy, with the shape of y, and adds to the head's gradients.
  void sequence_gradients(const HeadWeights& head, const HeadRows& rows, const at::Tensor& y, const at::Tensor& grad_values,
                          const at::Tensor& gy);
  /// Turns gy, the gradient of head_input(x) for the rows x here, into g of all rows here, and adds to the norm's gradient.
  void head_input_backward(const HeadWeights& head, const HeadRows& rows, const at::Tensor& x, const at::Tensor& rstd,
                           const at::Tensor& gy, const at::Tensor& g);
  /// Returns the head's input, the hidden states after the final norm; `rstd` receives the statistic for the norm's backward.
  at::Tensor head_input(const HeadWeights& head, const at::Tensor& x, at::Tensor& rstd);

  const ModelSpec& spec_;
  RowSharing tensor_, context_;
  ops::VocabularyPart vocabulary_;  ///< this rank's part of the embedding's and the head's rows
  std::vector<Code> code_;          ///< by layer
  at::ScalarType dtype_;
  ops::NormWeight norm_;
  ops::Workspace workspace_;
  ops::RopeTable rope_;
  std::int64_t head_rows_ = 0;
};

}  // namespace qft::model

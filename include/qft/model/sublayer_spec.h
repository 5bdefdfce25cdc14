// A sub-layer, out = x + sub(norm(x)) or x + norm(sub(x)), as data: its parameters, the tensors it saves for backward, its
// scratch and its cost. Sizes are those of this rank (model/share.h). Loading, stores, adapters, memory plan and simulation read
// this; model/sublayer.h is its code. To add a kind, add a pair of files in src/model/sublayers and name it in descriptions.cpp
// and sublayer.cpp there.
#pragma once

#include "qft/model/sequence_heads.h"
#include "qft/model/share.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qft::model {

/// How tensor ranks split a weight [out, in]: `rows` computes some outputs from all inputs (Megatron's column
/// parallelism, also used for heads), `columns` computes a partial sum of all outputs from some inputs (row parallelism).
enum class Split : std::uint8_t { rows, columns };

/// A linear module of a layer, whose weight is [out, in] on this rank.
struct LinearSpec {
  std::string name;  ///< the name in PEFT's target_modules: "q_proj"
  std::string path;  ///< the path in transformers' layer: "self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  Cut rows, columns;  ///< of the logical weight's outputs and inputs; at most one of the two is cut
  bool bias = false;
  Split split = Split::rows;

  /// Return a linear that is cut by its outputs (Split::rows) or by its inputs (Split::columns).
  static LinearSpec of_rows(std::string name, std::string path, const Cut& rows, std::int64_t in, bool bias = false);
  static LinearSpec of_columns(std::string name, std::string path, std::int64_t out, const Cut& columns, bool bias = false);
};

/// Set if a projection group exists once per expert.
struct ExpertStack {
  std::int64_t experts = 0;    ///< 0: not a stack
  std::int64_t per_token = 1;  ///< experts, and therefore rows, per token
  std::string path = {};       ///< path of the experts in the layer: "mlp.experts"
  std::string name = {};       ///< name of the fused tensor there in transformers: "gate_up_proj"
  bool fused = false;          ///< files hold the fused tensor rather than one tensor per expert and linear
};
/// Returns PEFT's parameter name of an expert stack, without the layer's prefix: "mlp.experts.gate_up_proj".
std::string path_of(const ExpertStack& stack);

/// Rows of a group's weight to which one pair of LoRA factors adds: the rows of one linear, or of all.
struct LoraRows {
  std::size_t linear = 0;  ///< the first linear among these rows
  std::int64_t row0 = 0, rows = 0, rank = 0;
  double scaling = 1.0;
  bool dora = false;

  /// Returns the columns per token that forward saves for backward (ops/linear.h).
  std::int64_t saved_columns() const { return rank + (dora ? rows : 0); }
};

/// Rows of a group's weight, belonging to one linear, that are multiplied with inputs rotated by OFT.
struct OftRows {
  std::size_t linear = 0;
  std::int64_t row0 = 0, rows = 0;
  std::int64_t blocks = 0, block = 0;  ///< number of blocks of inputs, and inputs per block; all blocks may share one rotation
  int terms = 0;                       ///< ops::CayleyTerms
};

/// Parameters that are adjacent in the flat buffers: either a projection group (weights, then biases, then LoRA factors), or a
/// single tensor that belongs to no linear. With experts the group is a stack: the weights of all its linears form one parameter
/// [experts, rows of the linears, in], and so do the LoRA factors.
struct ParamGroup {
  std::vector<LinearSpec> linears = {};
  ExpertStack stack = {};
  std::string tensor = {};               ///< path of the single tensor if there are no linears: "self_attn.q_norm.weight"
  Cut rows = {};                         ///< its first dimension
  std::vector<std::int64_t> inner = {};  ///< its other dimensions
  bool decays = false;                   ///< weight decay, like HF Trainer: false for biases and norms
  std::vector<LoraRows> lora = {};       ///< rows that the model's adapter wraps, by ascending row0 (ModelSpec::build)
  std::vector<OftRows> oft = {};         ///< likewise for OFT

  bool is_wrapped() const { return !lora.empty() || !oft.empty(); }
  bool is_stack() const { return stack.experts > 0; }
  std::int64_t in() const { return linears.front().in; }
  /// Returns the number of experts, 1 without a stack. Each weight takes part in per_token products per experts() tokens.
  std::int64_t experts() const { return is_stack() ? stack.experts : 1; }
  std::int64_t out() const;
};

/// Element type of a saved tensor: compute dtype, statistics_dtype() or int32.
enum class SavedType : std::uint8_t { compute, statistic, index };

/// A tensor [T, columns] or [columns, T] that forward saves for backward.
struct SavedSpec {
  std::int64_t columns = 0;
  SavedType type = SavedType::compute;
  bool transposed = false;    ///< [columns, T]
  bool of_norm = false;       ///< the input of the norm after the sub-layer; has as many rows as x
  bool of_sequences = false;  ///< has all rows of the micro-batch, although context ranks share them
};

/// Scratch memory [T, columns] in compute dtype, used only within one pass of one sub-layer. Sub-layers share it by name.
struct ScratchSpec {
  const char* name;
  std::int64_t columns = 0;
  bool backward_only = false;
  bool of_sequences = false;  ///< as in SavedSpec
};

/// Cost of a pass, without the linears' products, which follow from their sizes.
struct SubLayerCost {
  double values = 0;           ///< elements read and written by memory-bound operations, per token
  double pair_operations = 0;  ///< floating-point operations per pair of tokens in which one sees the other
};

/// Returns the number of pairs (token, visible token) in a sequence with `length` tokens. `window` as in SubLayerSpec.
double visible_pairs(std::int64_t length, std::int64_t window);

enum class SubLayerKind : std::uint8_t { attention, delta_net, swiglu, squared_relu, experts };

struct SubLayerSpec {
  SubLayerKind kind = SubLayerKind::attention;
  std::string norm;  ///< path of the norm's weight [hidden]
  /// The norm applies to the term added to x; the last tensor in `saved` is then the norm's input [T, hidden].
  bool norm_after = false;
  HeadShare heads = {};          ///< of this rank, in attention and in a delta net
  SequenceShare sequences = {};  ///< the heads for which each context rank has whole sequences
  /// Columns that context ranks exchange per row, the same in forward and backward: q, k, v, and the heads' outputs.
  std::int64_t exchanged_columns = 0;
  std::vector<ParamGroup> params;  ///< in the order of the flat buffers, after the norm
  std::int64_t window = 0;         ///< how many tokens a token sees, itself included; 0: all before it
  /// True: each rank computes its own rows with whole matrices. False: each tensor rank computes a term of all rows.
  bool on_own_rows = false;
  int input_groups = 1;          ///< this many of the first projection groups read the sub-layer's input
  std::vector<SavedSpec> saved;  ///< in addition to x, the norm's statistic and LoRA's x A^T
  std::vector<ScratchSpec> scratch;
  SubLayerCost forward, backward;  ///< include the norm and the residual addition; backward excludes recomputation

  /// Returns the projection groups in order, without single tensors.
  std::vector<const ParamGroup*> linears() const;
};

}  // namespace qft::model

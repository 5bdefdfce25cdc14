// A sub-layer, out = x + sub(norm(x)) or x + norm(sub(x)), as data: its parameters, what it keeps for backward, its scratch and
// its cost. Loading, stores, adapters, memory plan and simulation read this; model/sublayer.h is its code. A new kind is a pair
// of files in src/model/sublayers, named in descriptions.cpp and sublayer.cpp there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qft::model {

/// How the ranks of a tensor-parallel group would share a weight [out, in]: `rows` computes a part of the outputs from all inputs
/// (Megatron's column parallelism, of heads too), `columns` a term of all outputs from a part of the inputs (row parallelism).
enum class Split : std::uint8_t { rows, columns };

/// A linear module of a layer.
struct LinearSpec {
  std::string name;  ///< as PEFT's target_modules has it: "q_proj"
  std::string path;  ///< in the layer, as transformers has it: "self_attn.q_proj"
  std::int64_t out = 0, in = 0;
  bool bias = false;
  Split split = Split::rows;
};

/// What makes a group of linears that of many experts.
struct ExpertStack {
  std::int64_t experts = 0;    ///< 0: it is no stack
  std::int64_t per_token = 1;  ///< experts, so rows, of a token
  std::string path = {};       ///< of the experts in the layer: "mlp.experts"
  std::string name = {};       ///< of the fused tensor there, as transformers has it: "gate_up_proj"
  bool fused = false;          ///< models' files have that, rather than a tensor of each expert and linear
};
/// PEFT's name of a stack of experts' parameter, without the layer's prefix: "mlp.experts.gate_up_proj".
std::string path_of(const ExpertStack& stack);

/// Rows of a group's weight to which one pair of LoRA's factors adds: of a linear, or of all.
struct LoraRows {
  std::size_t linear = 0;  ///< the first of them
  std::int64_t row0 = 0, rows = 0, rank = 0;
  double scaling = 1.0;
  bool dora = false;

  /// What forward leaves to backward, of a token (ops/linear.h).
  std::int64_t saved_columns() const { return rank + (dora ? rows : 0); }
};

/// Rows of a group's weight that are multiplied with inputs that OFT has turned: those of a linear.
struct OftRows {
  std::size_t linear = 0;
  std::int64_t row0 = 0, rows = 0;
  std::int64_t blocks = 0, block = 0;  ///< of the inputs, each of so many; one block may serve all
  int terms = 0;                       ///< ops::CayleyTerms
};

/// Parameters that lie next to each other in the flat buffers: linears of one input, computed as one product (weights, then
/// biases, then LoRA's factors), or a single tensor that is no linear's. Of experts the group is a stack: the weights of all its
/// linears are one parameter [experts, rows of the linears, in], LoRA's factors likewise.
struct ParamGroup {
  std::vector<LinearSpec> linears = {};
  ExpertStack stack = {};
  std::string tensor = {};  ///< its path, where there are no linears: "self_attn.q_norm.weight"
  std::vector<std::int64_t> shape = {};
  bool decays = false;              ///< as HF Trainer decides: not biases and norms
  bool per_head = false;            ///< the tensor serves each head alike, and heads are shared: its gradient is a sum over them
  bool of_heads = false;            ///< each head has rows of its own, and heads are shared
  std::vector<LoraRows> lora = {};  ///< those that the model's adapter wraps, by ascending row0 (ModelSpec::build)
  std::vector<OftRows> oft = {};    ///< likewise

  bool is_wrapped() const { return !lora.empty() || !oft.empty(); }
  bool is_stack() const { return stack.experts > 0; }
  std::int64_t in() const { return linears.front().in; }
  /// Of the weights; each takes part in per_token products of experts() tokens.
  std::int64_t experts() const { return is_stack() ? stack.experts : 1; }
  std::int64_t out() const;
};

/// Element type of what is kept: compute dtype; statistics_dtype(); int32.
enum class SavedType : std::uint8_t { compute, statistic, index };

/// A tensor [T, columns] that forward leaves to backward, or [columns, T].
struct SavedSpec {
  std::int64_t columns = 0;
  SavedType type = SavedType::compute;
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

/// Pairs of a token and one that it sees, in a sequence of `length` tokens. `window`: as in SubLayerSpec.
double visible_pairs(std::int64_t length, std::int64_t window);

enum class SubLayerKind : std::uint8_t { attention, delta_net, swiglu, squared_relu, experts };

struct SubLayerSpec {
  SubLayerKind kind = SubLayerKind::attention;
  std::string norm;                ///< path of the norm's weight [hidden]
  bool norm_after = false;         ///< it norms what is added to x; `saved` ends with what it was given, [T, hidden]
  std::vector<ParamGroup> params;  ///< in the order of the flat buffers, after the norm
  std::int64_t window = 0;         ///< how many tokens a token sees, itself included; 0: all before it
  int entries = 1;                 ///< so many first groups of linears read what the sub-layer is given
  std::vector<SavedSpec> saved;    ///< besides x, the norm's statistic and LoRA's x A^T
  std::vector<ScratchSpec> scratch;
  SubLayerCost forward, backward;  ///< with the norm and the residual's sum; backward without what is computed again

  /// The groups that are linears, in order.
  std::vector<const ParamGroup*> linears() const;
};

}  // namespace qft::model

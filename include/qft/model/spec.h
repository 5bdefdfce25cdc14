// The parameters of a model as data: the descriptions of its sub-layers (model/sublayer_spec.h) give names and shapes; everything
// else (loading, stores, LoRA, export, checkpoints) walks the list that comes out of it.
#pragma once

#include "qft/comm/mesh.h"
#include "qft/core/box.h"
#include "qft/model/adapter.h"
#include "qft/model/config.h"
#include "qft/model/sublayer_spec.h"
#include "qft/model/trained_parts.h"
#include "qft/ops/quantized_layout.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

/// The names of the linear modules that an adapter can wrap, of all kinds of sub-layers, in the order in which PEFT's files have
/// them.
const std::vector<std::string>& lora_modules();
/// Those that a model has.
std::vector<std::string> lora_modules(const ModelConfig& config);

/// A base tensor, one of the two factors of a linear's LoRA, DoRA's magnitude of each of its outputs, OFT's rotations of its
/// inputs, or a tensor of a head of sequences, which trains beside these too.
enum class Role : std::uint8_t { base, lora_a, lora_b, magnitude, rotation, value_head };
/// Whether it is one of an adapter's own tensors.
inline bool is_factor(Role role) {
  return role == Role::lora_a || role == Role::lora_b || role == Role::magnitude || role == Role::rotation;
}

/// What the gradient that a rank's backward pass gives is to the other ranks along an axis of the mesh. (Without sequence
/// parallelism, and with at least as many key and value heads as tensor-parallel ranks.)
enum class Along : std::uint8_t {
  sum,   ///< a term: the ranks' gradients add up to the parameter's
  copy,  ///< the same on all of them
  own    ///< of a box, or of a layer, that this rank alone has
};
/// By comm::Axis.
using GradientAxes = std::array<Along, comm::kAxes>;
/// Ranks with other samples, or with other tokens of a sample, have terms of the gradient.
GradientAxes gradient_axes(Along tensor_axis, Along pipeline_axis = Along::own);

/// A tensor of files that holds elements of a logical tensor that follow each other.
struct FileTensor {
  std::string name;
  Shape shape;
};

/// The flat buffers of a unit.
enum class Part : std::uint8_t {
  frozen,     ///< in compute dtype
  trainable,  ///< likewise
  quantized   ///< frozen weights of 8 or 4 bits; decoded to compute dtype where the unit is acquired
};

/// One logical tensor, and the box of it with which this rank computes. `offset` counts elements in the flat buffer
/// of its part, where the box lies flattened: of quantised weights in the decoded one.
struct ParamSpec {
  std::string name;  ///< Hugging Face's name, or PEFT's for a LoRA factor
  std::string path;  ///< in its unit: "self_attn.q_proj.weight", "self_attn.q_proj.lora_A.weight", "lm_head.weight"
  Role role = Role::base;
  Shape shape;                    ///< of the whole tensor
  std::vector<FileTensor> parts;  ///< where files have tensors of parts of it, in order, rather than one of this name and shape
  bool experts_last = false;      ///< [experts, out, rank] here, [out, rank * experts] with the experts innermost in files
  Box box;
  std::int64_t numel = 0;  ///< of the box
  std::int64_t offset = 0;
  GradientAxes gradient{};
  bool first_holder = true;  ///< the first of the ranks that hold the same box: it alone counts it in the norm, and saves it
  bool trainable = false;
  bool weight_decay = false;       ///< as HF Trainer decides: not for biases and norms
  double lr_factor = 1.0;          ///< of the run's learning rate
  ops::QuantizedLayout packed;     ///< of a quantised weight, or of each of the equal pieces that it is quantised in
  std::int64_t packed_pieces = 1;  ///< they follow each other, as their bytes do
  std::int64_t packed_offset = 0;  ///< the first byte in the unit's bytes
  std::int64_t derived_numel =
      0;  ///< values that follow from it (UnitBuffers::derived): of DoRA's magnitudes factors, then norms; of OFT's, R - I
  std::int64_t derived_offset = 0;

  bool is_quantized() const { return packed.kind.format != ops::QuantFormat::none; }
  std::int64_t packed_bytes() const { return packed_pieces * packed.bytes; }
  Part part() const { return is_quantized() ? Part::quantized : trainable ? Part::trainable : Part::frozen; }

  /// How files have it.
  std::vector<FileTensor> in_files() const;
  Along along(comm::Axis axis) const { return gradient[static_cast<std::size_t>(axis)]; }
};

/// What is gathered, released and reduced as one (FSDP's unit): the embedding, a layer, or the head.
struct UnitSpec {
  enum class Kind : std::uint8_t { embedding, layer, head } kind = Kind::layer;
  int layer = -1;
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<ParamSpec> params;
  std::int64_t frozen_numel = 0, trainable_numel = 0;  ///< flat sizes, alignment included
  std::int64_t quantized_numel = 0, packed_bytes = 0;  ///< of quantised weights: decoded, and as they are kept
  std::int64_t derived_numel = 0;                      ///< of what follows from the weights

  /// Of the weights between uses, at `item` bytes an element where they are not quantised.
  std::int64_t bytes(std::int64_t item) const { return (frozen_numel + trainable_numel) * item + packed_bytes; }
};

/// Which base tensors train.
enum class Finetuning : std::uint8_t { full, adapter, freeze };

/// What follows the final norm: lm_head, or a linear that gives so many values of each sequence at its last row. lm_head is not
/// used then.
struct Head {
  std::int64_t values = 0;  ///< of each sequence; 0: logits of each row
  bool classifies = false;  ///< the linear is a classifier's; else a reward model's

  bool of_sequences() const { return values > 0; }
  bool operator==(const Head&) const = default;

  static const Head language_model;
  static const Head value;  ///< a score: TRL's ValueHead, without its dropout, in a file of its own
  /// transformers' `score` of so many labels, without a bias, among the tensors of the model or, beside LoRA, of the adapter.
  static constexpr Head classifier(std::int64_t labels) { return {labels, true}; }
};
inline constexpr Head Head::language_model{};
inline constexpr Head Head::value{1, false};

/// Paths of parameters in their units: an adapter's, after a linear's path, and those outside the layers.
inline constexpr const char* kLoraMark = ".lora_";  ///< with which all of LoRA's begin
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline constexpr const char* kMagnitude = ".lora_magnitude_vector";
inline constexpr const char* kOftR = ".oft_R.weight";
inline constexpr const char* kAdapterPrefix = "base_model.model.";  ///< before the names of an adapter's tensors, as PEFT has it
/// The decoder's in a model that sees, and in one of text alone (Qwen3.5 has both); before the names of its tensors and modules.
inline constexpr std::string_view kTextPrefixes[] = {"model.language_model.", "model."};
inline constexpr const char* kEmbedTokens = "model.embed_tokens.weight";
inline constexpr const char* kFinalNorm = "model.norm.weight";
inline constexpr const char* kLmHead = "lm_head.weight";
inline constexpr const char* kValueHead = "v_head.summary.weight";  ///< [1, hidden]
inline constexpr const char* kValueHeadBias = "v_head.summary.bias";
inline constexpr const char* kScore = "score.weight";  ///< [labels, hidden]

/// How frozen linears of the layers are kept.
struct AtRest {
  /// The format of a weight, by the name that files have for it. Not asked for routers.
  std::function<ops::Quantization(const std::string& tensor)> format_of = [](const std::string&) { return ops::Quantization{}; };
  bool by_file_tensor = false;  ///< each tensor that files have for a part of a stack is quantised by itself

  /// All of them in one format.
  static AtRest in(const ops::Quantization& kind) {
    return {[kind](const std::string&) { return kind; }};
  }
};

/// A layer: its sub-layers, in order.
using Layer = std::vector<SubLayerSpec>;

/// The whole model: units 0 (embedding), 1..num_layers, num_layers + 1 (head).
struct ModelSpec {
  ModelConfig config;
  AdapterConfig adapter;
  Finetuning finetuning = Finetuning::full;
  Head head = Head::language_model;
  FreezeConfig freeze;  ///< with Finetuning::freeze
  bool untied = false;  ///< config.json ties head and embeddings, but the adapter has them apart
  std::vector<UnitSpec> units;
  std::vector<Layer> layers;

  int num_units() const { return static_cast<int>(units.size()); }
  int head_unit() const { return num_units() - 1; }
  /// Whether the block is a layer with experts.
  bool has_experts(int block) const;
  /// Whether the head computes with the embedding's table.
  bool ties_head() const { return !head.of_sequences() && config.tie_word_embeddings; }
  /// Units whose weights block `b` uses: itself, and the embedding for a tied head.
  std::vector<int> units_of_block(int block) const;
  std::int64_t num_params(bool trainable_only) const;
  /// The lowest block with a parameter that trains: no gradient flows below it. num_units(): none has one.
  int lowest_trained_block() const;
  /// Whether the files of a whole model have it.
  bool in_model(const ParamSpec& param) const {
    return param.role == Role::base || (param.role == Role::value_head && head.classifies);
  }
  /// Whether a tensor that is none of the decoder's (ModelConfig::is_other()) stays in the files of a model that is written: all
  /// but the lm_head of a classifier.
  bool keeps(std::string_view tensor) const { return config.is_other(tensor) && !(head.classifies && tensor == kLmHead); }
  /// How an adapter's files have a parameter: a factor, a base tensor that trains beside them, or a classifier's head. Empty:
  /// they do not have it.
  std::vector<FileTensor> in_adapter(const ParamSpec& param) const;

  /// Throws ConfigError where a name or an expression of `adapter` meets no linear, or one for targets meets what adapters do not
  /// wrap, which PEFT leaves out, or not, in silence.
  void require_adapter_targets() const;

  /// Where the adapter's modules_to_save has embeddings or head and these are tied, they part: each is a tensor of its own, of
  /// which the files have the one. What trains beside an adapter or in a part of the model is not quantised. Linears that files
  /// have plain beside quantised ones of their product are kept with these, as fp32. Throws Error where the parts of a stack are
  /// in several formats; ConfigError as require_trained_parts(), and where the model's files have quantised what would train.
  static ModelSpec build(const ModelConfig& config, Finetuning finetuning, const AdapterConfig& adapter,
                         const AtRest& at_rest = {}, Head head = Head::language_model, const FreezeConfig& freeze = {});
};

/// Flat buffers start each group of adjacent tensors on such a boundary (elements): vector loads stay aligned.
constexpr std::int64_t kFlatAlignment = 64;

}  // namespace qft::model

// A model's parameters as data. The sub-layer descriptions (model/sublayer_spec.h) give names and shapes; everything else
// (loading, stores, LoRA, export, checkpoints) walks the resulting list.
#pragma once

#include "qft/comm/mesh.h"
#include "qft/core/box.h"
#include "qft/model/adapter.h"
#include "qft/model/config.h"
#include "qft/model/share.h"
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

/// Returns the names of all linear modules that an adapter can wrap, for all sub-layer kinds, in the order of PEFT's files.
const std::vector<std::string>& lora_modules();
/// Returns the subset that this model has.
std::vector<std::string> lora_modules(const ModelConfig& config);

/// A base tensor; one of the two LoRA factors of a linear; DoRA's magnitudes (one per output); OFT's rotations of a linear's
/// inputs; or a tensor of a value head or classifier head, which also trains beside an adapter.
enum class Role : std::uint8_t { base, lora_a, lora_b, magnitude, rotation, value_head };
/// Returns true for an adapter's own tensors.
inline bool is_factor(Role role) {
  return role == Role::lora_a || role == Role::lora_b || role == Role::magnitude || role == Role::rotation;
}

/// State of the gradient from a rank's backward pass along a mesh axis.
enum class GradPlacement : std::uint8_t {
  partial,  ///< the parameter's gradient is the sum over the ranks
  sharded   ///< only this rank has these boxes or this layer
};
/// Indexed by comm::Axis. Ranks with other samples, or with other tokens of a sample, hold partial gradients.
using GradientAxes = std::array<GradPlacement, comm::kAxes>;

/// A file's tensor that holds consecutive elements of a logical tensor.
struct FileTensor {
  std::string name;
  Shape shape;
};

/// The flat buffers of a unit.
enum class Part : std::uint8_t {
  frozen,     ///< in compute dtype
  trainable,  ///< in compute dtype
  quantized   ///< frozen weights in 8 or 4 bits, decoded to compute dtype when the unit is acquired
};

/// A logical tensor and this rank's boxes of it. The boxes lie one after the other, each flattened, from element `offset` on in
/// the flat buffer of its part; for quantised weights, in the decoded buffer.
struct ParamSpec {
  std::string name;  ///< Hugging Face's name, or PEFT's for a LoRA factor
  std::string path;  ///< within its unit: "self_attn.q_proj.weight", "self_attn.q_proj.lora_A.weight", "lm_head.weight"
  Role role = Role::base;
  Shape shape;  ///< of the whole tensor
  /// Not empty: files hold these tensors, in order, instead of one tensor with this name and shape.
  std::vector<FileTensor> parts;
  bool experts_last = false;  ///< [experts, out, rank] in memory; [out, rank * experts], experts innermost, in files
  std::vector<Box> boxes;
  Shape local_shape;       ///< shape of the tensor that the boxes form on this rank, with which the code computes
  Shape largest_shape;     ///< the local shape on the tensor rank that has most, which is rank 0
  std::int64_t numel = 0;  ///< elements of the boxes
  std::int64_t offset = 0;
  std::int64_t whole_offset = 0;  ///< `offset` if one rank held the whole tensors: the same on any number of ranks
  /// By axis: replicate, pipeline, shard, context, tensor.
  GradientAxes gradient{GradPlacement::partial, GradPlacement::sharded, GradPlacement::partial, GradPlacement::partial,
                        GradPlacement::sharded};
  /// A partial gradient along the tensor axis is the sum over the ranks with the same slot, of 0 .. slots - 1. These ranks hold
  /// the same boxes, at the same offset.
  int slot = 0, slots = 1;
  bool first_holder = true;  ///< true on the first rank with these boxes, which alone counts them in the norm and saves them
  bool trainable = false;
  bool weight_decay = false;    ///< like HF Trainer: false for biases and norms
  double lr_factor = 1.0;       ///< multiplies the run's learning rate
  ops::QuantizedLayout packed;  ///< layout of a quantised weight, or of each equal piece if the weight is quantised in pieces
  ops::QuantizedLayout packed_whole;  ///< the same for the whole tensor
  std::int64_t packed_pieces = 1;     ///< consecutive pieces; their bytes are consecutive too
  std::int64_t packed_offset = 0;     ///< first byte among the unit's packed bytes
  /// Values that follow from the tensor (UnitBuffers::derived). DoRA's magnitudes: factors, then norms; OFT's rotations: R - I.
  std::int64_t derived_numel = 0;
  std::int64_t derived_offset = 0;

  bool is_quantized() const { return packed.kind.format != ops::QuantFormat::none; }
  std::int64_t packed_bytes() const { return packed_pieces * packed.bytes; }
  Part part() const { return is_quantized() ? Part::quantized : trainable ? Part::trainable : Part::frozen; }

  /// Returns the tensors that files hold for it.
  std::vector<FileTensor> in_files() const;
  bool is_whole() const { return boxes.size() == 1 && boxes.front() == Box::whole(shape); }
  /// Returns the parameter as a rank that holds the whole tensor has it: for readers of files. Its place in buffers has no
  /// meaning.
  ParamSpec whole() const;
  GradPlacement placement(comm::Axis axis) const { return gradient[static_cast<std::size_t>(axis)]; }
};

/// Returns the index in the logical tensor, flattened in row-major order, of element `i` of the parameter's boxes.
std::int64_t logical_index(const ParamSpec& param, std::int64_t i);

/// The weights that are gathered, released and reduced together (FSDP's unit): those of the embedding, a layer, or the head.
struct UnitSpec {
  enum class Kind : std::uint8_t { embedding, layer, head } kind = Kind::layer;
  int layer = -1;
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<ParamSpec> params;
  std::int64_t frozen_numel = 0, trainable_numel = 0;  ///< flat sizes, alignment included
  std::int64_t quantized_numel = 0, packed_bytes = 0;  ///< quantised weights: elements when decoded, and bytes when packed
  std::int64_t derived_numel = 0;                      ///< values that derive_values() computes

  /// Returns the bytes of the weights between uses, at `item` bytes per element that is not quantised.
  std::int64_t bytes(std::int64_t item) const { return (frozen_numel + trainable_numel) * item + packed_bytes; }
};

/// The base tensors that train.
enum class Finetuning : std::uint8_t { full, adapter, freeze };

/// The layer after the final norm: lm_head, or a function of each sequence's last row.
struct Head {
  enum class Kind : std::uint8_t {
    language_model,   ///< logits for each row
    value,            ///< a reward model's linear with a bias: a score
    classifier,       ///< a linear without bias
    vector,           ///< no weights: the row divided by its length
    token_difference  ///< two rows of lm_head, or of the tied embeddings: the logit of one token minus the other's
  };

  Kind kind = Kind::language_model;
  std::int64_t values = 0;                   ///< per sequence; 0: logits for each row
  std::int32_t minuend = 0, subtrahend = 0;  ///< token_difference: the tokens

  bool of_sequences() const { return kind != Kind::language_model; }
  bool classifies() const { return kind == Kind::classifier; }
  /// True if it has a linear besides lm_head (Role::value_head).
  bool has_linear() const { return kind == Kind::value || kind == Kind::classifier; }
  /// True if it computes with lm_head or with the tied embeddings.
  bool reads_tokens() const { return kind == Kind::language_model || kind == Kind::token_difference; }
  bool operator==(const Head&) const = default;

  static const Head language_model;
  static const Head value;  ///< a score: TRL's ValueHead, without its dropout, saved in a separate file
  /// transformers' `score` with `labels` labels and no bias, saved with the model's tensors or, beside LoRA, with the adapter's.
  static constexpr Head classifier(std::int64_t labels) { return {Kind::classifier, labels}; }
  /// The hidden state itself, with length 1, as torch's F.normalize computes it.
  static constexpr Head vector(std::int64_t hidden_size) { return {Kind::vector, hidden_size}; }
  static constexpr Head token_difference(std::int32_t minuend, std::int32_t subtrahend) {
    return {Kind::token_difference, 1, minuend, subtrahend};
  }
};
inline constexpr Head Head::language_model{};
inline constexpr Head Head::value{Kind::value, 1};

/// Paths of parameters in their units: suffixes after a linear's path for adapters, and full paths for parameters outside the
/// layers.
inline constexpr const char* kLoraMark = ".lora_";  ///< common prefix of LoRA's suffixes
inline constexpr const char* kLoraA = ".lora_A.weight";
inline constexpr const char* kLoraB = ".lora_B.weight";
inline constexpr const char* kMagnitude = ".lora_magnitude_vector";
inline constexpr const char* kOftR = ".oft_R.weight";
inline constexpr const char* kAdapterPrefix = "base_model.model.";  ///< PEFT's prefix for the names of an adapter's tensors
/// Prefix of the decoder's tensors and modules in a vision-language model, and in a text-only model (Qwen3.5 has both).
inline constexpr std::string_view kTextPrefixes[] = {"model.language_model.", "model."};
inline constexpr const char* kEmbedTokens = "model.embed_tokens.weight";
inline constexpr const char* kFinalNorm = "model.norm.weight";
inline constexpr const char* kLmHead = "lm_head.weight";
inline constexpr const char* kValueHead = "v_head.summary.weight";  ///< [1, hidden]
inline constexpr const char* kValueHeadBias = "v_head.summary.bias";
inline constexpr const char* kScore = "score.weight";  ///< [labels, hidden]

/// Storage format of the layers' frozen linears.
struct WeightStorage {
  /// Returns a weight's format, given the weight's name in files. Not called for routers.
  std::function<ops::Quantization(const std::string& tensor)> format_of = [](const std::string&) { return ops::Quantization{}; };
  bool by_file_tensor = false;  ///< in a stack, each tensor of the files is quantised separately

  /// Returns the same format for all linears.
  static WeightStorage in(const ops::Quantization& kind) {
    return {[kind](const std::string&) { return kind; }};
  }
};

/// A layer: its sub-layers, in order.
using Layer = std::vector<SubLayerSpec>;

/// The whole model: unit 0 (embedding), units 1..num_layers, unit num_layers + 1 (head).
struct ModelSpec {
  ModelConfig config;
  AdapterConfig adapter;
  Finetuning finetuning = Finetuning::full;
  Head head = Head::language_model;
  FreezeConfig freeze;  ///< used with Finetuning::freeze
  Share share;          ///< this rank among those that share matrices
  Share context;        ///< this rank among those that share sequences
  Extent vocabulary;    ///< this rank's rows of the embedding and of lm_head
  bool untied = false;  ///< config.json ties head and embeddings, but the adapter has separate tensors for them
  std::vector<UnitSpec> units;
  std::vector<Layer> layers;

  int num_units() const { return static_cast<int>(units.size()); }
  int head_unit() const { return num_units() - 1; }
  /// Returns true if the block is a layer with experts.
  bool has_experts(int block) const;
  /// Returns true if the head computes with the embedding's table.
  bool ties_head() const { return head.reads_tokens() && config.tie_word_embeddings; }
  /// Returns the units whose weights block `block` uses: itself, and the embedding for a tied head.
  std::vector<int> units_of_block(int block) const;
  /// Returns the elements of the logical tensors.
  std::int64_t num_params(bool trainable_only) const;
  /// Returns the lowest block with a trainable parameter, below which no gradient flows; num_units() if there is none.
  int lowest_trained_block() const;
  /// Returns true if the files of a whole model hold the parameter.
  bool in_model(const ParamSpec& param) const {
    return param.role == Role::base || (param.role == Role::value_head && head.classifies());
  }
  /// Returns true if a tensor outside the decoder (ModelConfig::is_other()) stays in a written model's files: every such tensor
  /// except a classifier's lm_head.
  bool keeps(std::string_view tensor) const { return config.is_other(tensor) && !(head.classifies() && tensor == kLmHead); }
  /// Returns the tensors that an adapter's files hold for a parameter: a factor, a base tensor that trains beside the factors, or
  /// a classifier's head. Empty if the files do not hold it.
  std::vector<FileTensor> in_adapter(const ParamSpec& param) const;

  /// Throws ConfigError if `ranks` tensor ranks cannot share the model's matrices. The message names the first matrices with too
  /// few heads, columns or rows, and the nearest numbers of ranks that can share everything. `weight_storage` as for build().
  void require_share(int ranks, const WeightStorage& weight_storage = {}) const;
  /// Throws ConfigError if a tensor rank has fewer heads than there are context ranks. The message names the heads and the
  /// nearest number of context ranks that works.
  void require_context(int ranks, int tensor_ranks, const WeightStorage& weight_storage = {}) const;

  /// Throws ConfigError if a name or an expression in `adapter` matches no linear, or if an expression for targets matches a
  /// module that adapters do not wrap. (PEFT handles such modules silently, and not consistently.)
  void require_adapter_targets() const;

  /// Builds the spec. If the adapter's modules_to_save contains tied embeddings or the head, they are untied: each becomes its
  /// own tensor, both loaded from the one in the files. A weight that trains beside an adapter, or in part of the model, is not
  /// quantised. If files hold some linears of a projection group quantised and others plain, the plain ones are kept with the
  /// quantised ones, as fp32. Throws Error if a stack's parts have several formats; ConfigError as require_trained_parts(), and
  /// if the model's files hold a trainable weight quantised, and as require_share().
  static ModelSpec build(const ModelConfig& config, Finetuning finetuning, const AdapterConfig& adapter,
                         const WeightStorage& weight_storage = {}, Head head = Head::language_model,
                         const FreezeConfig& freeze = {}, Share share = {}, Share context = {});
};

/// Each group of adjacent tensors starts on this boundary (in elements) of a flat buffer, which keeps vector loads aligned.
constexpr std::int64_t kFlatAlignment = 64;

}  // namespace qft::model

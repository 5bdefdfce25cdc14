// The parameters of a model as data: one table of tensor kinds gives names, shapes and places; everything else
// (loading, stores, LoRA, export, checkpoints) walks the list that comes out of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "qft/model/config.h"

namespace qft::model {

/// Every base tensor of the family, in the order in which a unit's flat buffer holds them. The order makes q, k, v
/// (and gate, up) adjacent, so that the fused projection is a view.
enum class TensorKind : std::uint8_t {
  embed_tokens,
  input_norm,
  q_weight,
  k_weight,
  v_weight,
  q_bias,
  k_bias,
  v_bias,
  q_norm,
  k_norm,
  o_weight,
  o_bias,
  post_norm,
  gate_weight,
  up_weight,
  gate_bias,
  up_bias,
  down_weight,
  down_bias,
  final_norm,
  lm_head,
  count
};

/// The linear modules that LoRA can wrap, by the names PEFT's target_modules uses.
enum class Module : std::uint8_t { q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, count };
constexpr std::size_t kModules = static_cast<std::size_t>(Module::count);

const char* module_name(Module module);
/// [out_features, in_features] of a module.
std::array<std::int64_t, 2> module_shape(const ModelConfig& config, Module module);

/// LoRA (Hu et al. 2021; PEFT's LoraLayer): W x + scaling * B A dropout(x).
struct LoraConfig {
  std::int64_t rank = 0;  ///< 0: no LoRA
  double alpha = 0.0;
  double dropout = 0.0;
  bool rslora = false;  ///< scaling alpha / sqrt(rank) (Kalajdzievski 2023)
  std::array<bool, kModules> targets{};

  bool enabled() const { return rank > 0; }
  bool targets_module(Module module) const { return targets[static_cast<std::size_t>(module)]; }
  double scaling() const;
  std::vector<std::string> target_names() const;
  /// `all` or a comma-separated list of module names; throws ConfigError naming an unknown one and the known.
  void set_targets(const std::string& list);
};

/// What a parameter is inside its unit: a base tensor, or one of the two factors of a module's LoRA.
enum class Role : std::uint8_t { base, lora_a, lora_b };

/// One logical tensor. `offset` counts elements in the unit's frozen or trainable flat buffer.
struct ParamSpec {
  std::string name;  ///< Hugging Face's name, or PEFT's for a LoRA factor
  Role role = Role::base;
  TensorKind kind = TensorKind::count;  ///< for Role::base
  Module module = Module::count;        ///< for LoRA factors
  std::vector<std::int64_t> shape;
  std::int64_t numel = 0;
  std::int64_t offset = 0;
  bool trainable = false;
  bool weight_decay = false;  ///< as HF Trainer decides: not for biases and norms
};

/// What is gathered, released and reduced as a whole: the embedding, a layer, or the head.
struct UnitSpec {
  enum class Kind : std::uint8_t { embedding, layer, head } kind = Kind::layer;
  int layer = -1;
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<ParamSpec> params;
  std::int64_t frozen_numel = 0, trainable_numel = 0;  ///< flat sizes, alignment included
};

/// Which base tensors train.
enum class Finetuning : std::uint8_t { full, lora };

/// The whole model: units 0 (embedding), 1..num_layers, num_layers + 1 (head).
struct ModelSpec {
  ModelConfig config;
  LoraConfig lora;
  Finetuning finetuning = Finetuning::full;
  std::vector<UnitSpec> units;

  int num_units() const { return static_cast<int>(units.size()); }
  int head_unit() const { return num_units() - 1; }
  /// Units whose weights block `b` uses: itself, and the embedding for a tied head.
  std::vector<int> units_of_block(int block) const;
  std::int64_t num_params(bool trainable_only) const;

  static ModelSpec build(const ModelConfig& config, Finetuning finetuning, const LoraConfig& lora);
};

/// Flat buffers start each group of adjacent tensors on such a boundary (elements): vector loads stay aligned.
constexpr std::int64_t kFlatAlignment = 64;

}  // namespace qft::model

// The trainable base tensors if only some of them train: finetuning_type freeze, and modules trained in full beside an adapter.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct ModelSpec;

/// finetuning_type freeze as in LLaMA-Factory: parts of some layers, and modules outside the layers.
struct FreezeConfig {
  std::set<std::int64_t> layers;
  /// The parts of these layers that train: first components of paths in a layer ("self_attn", "input_layernorm"), or "all".
  std::vector<std::string> modules = {"all"};
  /// Trains every tensor whose name contains one of these words: "embed_tokens"; "norm", which includes the layers' norms.
  std::vector<std::string> extra_modules;

  /// Returns true if a tensor trains, given its layer (-1: outside the layers), its path in the layer, and its name in files.
  bool trains(int layer, std::string_view path, std::string_view name) const;
  /// Returns the last `count` of `layers` layers; the first -count if `count` is negative.
  static std::set<std::int64_t> last_layers(std::int64_t count, std::int64_t layers);
  /// Returns the `count` layers that LLaMA-Pro's expansion inserted: the last of each of `count` equal groups. Throws ConfigError
  /// if `layers` is not a multiple of `count`.
  static std::set<std::int64_t> expanded_layers(std::int64_t count, std::int64_t layers);
};

/// Returns true if the tensor belongs to a module whose path ends with one of `modules`, or to a module inside it: PEFT's
/// modules_to_save.
bool is_saved_whole(const std::vector<std::string>& modules, std::string_view name);

/// Throws ConfigError, listing the available names, if a name in spec.freeze or spec.adapter.targets().modules_to_save matches
/// nothing in the model, splits the linears of a projection group, or names experts or a module that LoRA wraps.
void require_trained_parts(const ModelSpec& spec);

}  // namespace qft::model

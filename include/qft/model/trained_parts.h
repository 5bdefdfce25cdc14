// Which base tensors train where neither all nor none do: finetuning_type freeze, and modules in full beside an adapter.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace qft::model {

struct ModelSpec;

/// finetuning_type freeze, in LLaMA-Factory's sense: parts of some layers, and modules outside of the layers.
struct FreezeConfig {
  std::set<std::int64_t> layers;
  /// What of them: first words of paths in a layer ("self_attn", "input_layernorm"), or "all".
  std::vector<std::string> modules = {"all"};
  /// Every tensor whose name has one of these words: "embed_tokens"; "norm", which is the layers' norms too.
  std::vector<std::string> extra_modules;

  /// Of a tensor: its layer (-1: outside), its path there, its name in files.
  bool trains(int layer, std::string_view path, std::string_view name) const;
  /// The last `count` of so many layers; the first -count where it is negative.
  static std::set<std::int64_t> last_layers(std::int64_t count, std::int64_t layers);
  /// The `count` layers that LLaMA-Pro's expansion has put in: the last of each of so many equal groups. Throws ConfigError where
  /// `layers` is no multiple of `count`.
  static std::set<std::int64_t> expanded_layers(std::int64_t count, std::int64_t layers);
};

/// Whether the tensor is of a module, or of one within a module, whose path ends with one of `modules`: PEFT's modules_to_save.
bool is_saved_whole(const std::vector<std::string>& modules, std::string_view name);

/// Throws ConfigError, naming what there is, where a name in spec.freeze or spec.adapter.targets().modules_to_save is of nothing
/// in the model, and where it parts linears that are one product, names experts, or a module that LoRA wraps.
void require_trained_parts(const ModelSpec& spec);

}  // namespace qft::model

// Checks the tensors of an adapter's file against its configuration, and explains unexpected ones.
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "tensor_check.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Explains tensors whose name contains `part`; the first matching row counts.
struct Meaning {
  std::string_view part;
  std::string_view words;
};
constexpr std::string_view kOfModule = "belongs to a module that target_modules does not name or the model does not have";
constexpr Meaning kMeanings[] = {
    {".visual.", "belongs to the vision tower, which qft does not compute"},
    {".lora_embedding_", "LoRA on embeddings, which is not implemented"},
    {"lora_velora_embed", "VeLoRA, which is not implemented"},
    {".lora_diag", "KaSA, which is not implemented"},
    {".lora_B.bias", "lora_bias, which is not implemented"},
    {".token_adapter.", "rows of trained tokens (trainable_token_indices), which are not implemented"},
    {".lora_magnitude_vector", "DoRA's magnitudes; is use_dora missing in adapter_config.json?"},
    {".oft_R", kOfModule},
    {".lora_", kOfModule},
    {"embed_tokens.", "embeddings saved with the adapter (PEFT's save_embedding_layers, or modules_to_save)"},
    {"lm_head.", "the head, saved with the adapter (PEFT's save_embedding_layers, or modules_to_save)"},
    {"score.", "a classifier's head; task_type of adapter_config.json is not SEQ_CLS"},
    {"classifier.", "a classifier's head; task_type of adapter_config.json is not SEQ_CLS"},
    {"v_head.", "a reward model's head"},
    {".bias", "a trained bias (bias in adapter_config.json)"},
};

std::string_view meaning_of(std::string_view name) {
  for (const Meaning& meaning : kMeanings)
    if (name.find(meaning.part) != std::string_view::npos) return meaning.words;
  return "saved in full, but no key of adapter_config.json lists it (modules_to_save?)";
}

/// Returns "'lm_head.weight' and 3 more (the head, ...); ...".
std::string words_of(const std::vector<std::string>& names) {
  std::vector<std::string> words;
  std::set<std::string_view> said;
  for (const std::string& name : names) {
    const std::string_view meaning = meaning_of(name);
    if (!said.insert(meaning).second) continue;
    const auto more = std::ranges::count_if(names, [&](const std::string& other) { return meaning_of(other) == meaning; }) - 1;
    words.push_back(fmt::format("'{}'{} ({})", name, more > 0 ? fmt::format(" and {} more", more) : "", meaning));
  }
  return fmt::format("{}", fmt::join(words, "; "));
}

/// Returns the names that files may have for a tensor: with the decoder prefix of a vision-language or of a text-only model,
/// without one (PEFT writes that if the adapter was trained on an AutoModel), and with the newer names of Mixtral's experts.
std::vector<std::string> names_of(const std::string& name) {
  constexpr std::string_view kOld = ".block_sparse_moe.", kNew = ".mlp.", kOuter = kAdapterPrefix;
  std::vector<std::string> names = {name};
  if (name.starts_with(kOuter)) {
    std::string_view inner = std::string_view(name).substr(kOuter.size());
    const auto prefix = std::ranges::find_if(kTextPrefixes, [&](std::string_view p) { return inner.starts_with(p); });
    if (prefix != std::end(kTextPrefixes)) inner.remove_prefix(prefix->size());
    for (const std::string_view other : {kTextPrefixes[0], kTextPrefixes[1], std::string_view()})
      names.push_back(fmt::format("{}{}{}", kOuter, other, inner));
  }
  if (const auto place = name.find(kOld); place != std::string::npos)
    names.push_back(std::string(name).replace(place, kOld.size(), kNew));
  return names;
}

const io::TensorEntry* find_factor(const io::TensorFile& file, const std::string& name) {
  for (const std::string& candidate : names_of(name))
    if (const io::TensorEntry* entry = file.find(candidate)) return entry;
  return nullptr;
}

}  // namespace

const io::TensorEntry& factor_of(const io::TensorFile& file, const std::string& name) {
  const io::TensorEntry* entry = find_factor(file, name);
  return entry == nullptr ? file.at(name) : *entry;
}

void require_adapter_tensors(const ModelSpec& spec, const io::TensorFile& file) {
  std::set<const io::TensorEntry*> used;
  std::string missing;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params)
      for (const FileTensor& part : spec.in_adapter(param)) {
        const io::TensorEntry* entry = find_factor(file, part.name);
        if (entry == nullptr && missing.empty()) missing = part.name;
        if (entry == nullptr) continue;
        require_shape(file, *entry, part.shape);
        used.insert(entry);
      }
  std::vector<std::string> others;
  for (const io::TensorEntry& entry : file.entries())
    if (!used.contains(&entry)) others.push_back(entry.name);
  const std::string path = file.path().string();
  const std::string extra = others.empty() ? "" : fmt::format("the file holds {}", words_of(others));
  if (!missing.empty())
    fail(
        "'{}' has no tensor '{}', which target_modules and modules_to_save in adapter_config.json require for this {}{}: was the "
        "adapter trained on another model?",
        path, missing, spec.config.model_type, extra.empty() ? "" : "; " + extra);
  if (!extra.empty())
    fail(
        "'{}': {} tensors do not match adapter_config.json for this {}: {}. Was the adapter trained on another model? If not, "
        "merge it in PEFT (merge_and_unload) and use the merged model as model_name_or_path",
        path, others.size(), spec.config.model_type, extra);
}

}  // namespace qft::model

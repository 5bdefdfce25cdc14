// Checks the tensors of an adapter's file against its configuration, explains unexpected ones, and checks whether an adapter is
// loaded over the base model that it names. Names may be hub names, cache folders or paths.
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>
#include <system_error>

#include "tensor_check.h"
#include <fmt/format.h>
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

namespace fs = std::filesystem;

/// Name suffixes for quantised versions of the same model.
constexpr std::string_view kSameWeights[] = {
    "-unsloth-bnb-4bit", "-bnb-4bit", "-bnb-8bit", "-gptq-int4", "-gptq-int8", "-awq", "-fp8", "-4bit", "-8bit", "-hf"};

std::string replaced(std::string_view text, std::string_view from, char to) {
  std::string result;
  for (auto at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
    result += text.substr(0, at);
    result += to;
    text.remove_prefix(at + from.size());
  }
  return result += text;
}

/// Returns "qwen2-5-0-5b" for "Qwen/Qwen2.5-0.5B", "/models/Qwen2.5-0.5B/" and ".../models--Qwen--Qwen2.5-0.5B/snapshots/4e2f".
std::string plain_name(std::string name) {
  constexpr std::string_view kCache = "models--", kSnapshots = "/snapshots/";
  name = replaced(name, "\\", '/');
  if (const auto end = name.find(kSnapshots); end != std::string::npos && name.find(kCache) < end) name.resize(end);
  while (name.ends_with('/') || name.ends_with("/.")) name.pop_back();
  name.erase(0, name.rfind('/') + 1);
  if (name.starts_with(kCache)) name.erase(0, name.rfind("--") + 2);
  name = replaced(name, "___", '.');  // ModelScope's cache
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return std::isalnum(c) != 0               ? static_cast<char>(std::tolower(c))
           : c == '_' || c == '.' || c == ' ' ? '-'
                                              : static_cast<char>(c);
  });
  for (const std::string_view end : kSameWeights)
    if (name.ends_with(end)) name.resize(name.size() - end.size());
  return name;
}

bool same_weights(const fs::path& a, const fs::path& b) {
  const std::vector<fs::path> ours = io::weight_files(a), theirs = io::weight_files(b);
  return !ours.empty() && std::ranges::equal(ours, theirs, [](const fs::path& x, const fs::path& y) {
    return x.filename() == y.filename() && fs::file_size(x) == fs::file_size(y) &&
           io::sampled_hash(io::File::open_read(x)) == io::sampled_hash(io::File::open_read(y));
  });
}

bool is_same_model(const std::string& named, const std::string& given, const fs::path& folder) {
  if (named == given) return true;
  std::error_code code;
  if (fs::is_directory(named, code) && fs::is_directory(folder, code))
    return fs::equivalent(named, folder, code) || same_weights(named, folder);
  const std::string name = plain_name(named);
  return name == plain_name(given) || name == plain_name(folder.string());
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

void warn_about_other_base(const fs::path& adapter, const std::string& given, const fs::path& folder) {
  const std::string named = read_base_model_name(adapter);
  if (named.empty() || is_same_model(named, given, folder)) return;
  log::warn_once(fmt::format(
      "adapter '{}' was trained on '{}' (base_model_name_or_path in its {}), but is loaded over '{}': if the two have "
      "different weights, the adapter will not work as trained",
      adapter.string(), named, kAdapterConfigFile, given));
}

}  // namespace qft::model

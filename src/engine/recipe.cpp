#include "qft/engine/recipe.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/device/scalar_type.h"
#include "qft/engine/objectives.h"
#include "qft/model/adapter_config.h"

#include <utility>
#include <vector>

namespace qft::engine {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& w : words) text += (text.empty() ? "" : ",") + w;
  return text;
}

at::ScalarType file_type(const io::ModelFiles& files) {
  const auto names = files.names();
  require(!names.empty(), "'{}' holds no tensors", files.dir().string());
  return device::scalar_type_of(files.at(names.front()).entry->dtype);
}

/// Training continues an adapter as it is: keys that ask for another rank, scale or targets are an error.
void require_as_asked(const config::RunConfig& config, const model::LoraConfig& adapter, const std::filesystem::path& dir) {
  const auto& f = config.finetuning;
  const auto same = [&](const char* key, bool equal, const auto& asked, const auto& theirs) {
    if (!config.is_given(key) || equal) return;
    fail_config(
        "{}: {} is {}, but the adapter '{}' that training starts from has {}: remove the key to continue with that adapter, or "
        "merge it first (qft export) and train a new one on the merged model",
        config.given.find(key)->second, key, asked, dir.string(), theirs);
  };
  model::LoraConfig wish;
  wish.set_targets(join(f.lora_target));
  same("lora_rank", f.lora_rank == adapter.rank, f.lora_rank, adapter.rank);
  same("lora_alpha", static_cast<double>(f.lora_alpha) == adapter.alpha, f.lora_alpha, adapter.alpha);
  same("use_rslora", f.use_rslora == adapter.rslora, f.use_rslora, adapter.rslora);
  same("lora_target", wish.targets == adapter.targets, join(f.lora_target), join(adapter.targets));
}

/// No dropout where the sequences of an item are compared with each other, as in TRL and LLaMA-Factory.
double dropout_of(const config::RunConfig& config) {
  return objective_of(config).item_sequences > 1 ? 0.0 : config.finetuning.lora_dropout;
}

/// Rank 0 for full fine-tuning.
model::LoraConfig lora_of(const config::RunConfig& config, Use use) {
  const auto adapter = adapter_dir(config);
  if (!adapter.empty()) {
    model::LoraConfig lora = model::read_adapter_config(adapter);
    if (use == Use::inference) return lora;
    require_as_asked(config, lora, adapter);
    lora.dropout = dropout_of(config);
    return lora;
  }
  model::LoraConfig lora;
  if (use == Use::inference || config.finetuning.finetuning_type != "lora") return lora;
  lora.rank = config.finetuning.lora_rank;
  lora.alpha = static_cast<double>(config.finetuning.lora_alpha);
  lora.dropout = dropout_of(config);
  lora.rslora = config.finetuning.use_rslora;
  lora.set_targets(join(config.finetuning.lora_target));
  return lora;
}

}  // namespace

std::filesystem::path adapter_dir(const config::RunConfig& config) {
  const auto& names = config.model.adapter_name_or_path;
  if (names.empty()) return {};
  if (names.size() > 1)
    fail_config("adapter_name_or_path names {} adapters: only one is implemented; merge the others first (qft export)",
                names.size());
  const std::filesystem::path dir = config.folder_of(names.front());
  return config.model.adapter_folder.empty() ? dir : dir / config.model.adapter_folder;
}

InferencePrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files) {
  const auto throughout = [](at::ScalarType type) { return optim::Precision{type, type, type, type}; };
  const auto& t = config.training;
  if (const auto named = dtype_from_torch(config.model.infer_dtype))
    return {throughout(device::scalar_type_of(*named)), "infer_dtype"};
  for (const auto& [key, asks] :
       {std::pair{"compute_dtype", t.compute_dtype != "auto"}, {"bf16", t.bf16}, {"pure_bf16", t.pure_bf16}, {"fp16", t.fp16}})
    if (asks) return {training_precision(config), key};
  const at::ScalarType type = file_type(files);
  if (type == at::kHalf) return {optim::Precision::fp32(), "the model's files, in float16"};
  if (type == at::kBFloat16 && config.is_given("bf16")) return {optim::Precision::fp32(), "bf16: false"};
  return {throughout(type), "the model's files"};
}

model::ModelSpec spec_of(const config::RunConfig& config, Use use) {
  const model::LoraConfig lora = lora_of(config, use);
  return model::ModelSpec::build(model::ModelConfig::load(config.model_path()),
                                 lora.enabled() ? model::Finetuning::lora : model::Finetuning::full, lora);
}

optim::Precision training_precision(const config::RunConfig& config) {
  switch (config.compute_dtype()) {
    case DType::f64:
      return optim::Precision::fp64();
    case DType::f32:
      return optim::Precision::fp32();
    case DType::f16:
      return optim::Precision::fp16();
    case DType::bf16:
      return config.fp32_masters() ? optim::Precision::bf16() : optim::Precision::pure_bf16();
    default:
      break;
  }
  fail_config("compute dtype {} is not implemented: use bf16, fp16, pure_bf16 or fp32", safetensors_name(config.compute_dtype()));
}

plan::Recipe recipe_of(const config::RunConfig& config) {
  return {spec_of(config, Use::training), training_precision(config), objective_of(config)};
}

}  // namespace qft::engine

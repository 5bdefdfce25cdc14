#include "qft/model/classifier.h"

#include "qft/core/error.h"
#include "qft/model/tokenizer_changes.h"

#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

constexpr std::string_view kLanguageModelClass = "ForCausalLM";
// transformers has no classifiers for these, or with the decoder in another place.
constexpr std::string_view kNoClassifierPrefix = "qwen3_5";

}  // namespace

Head head_of(const ModelConfig& config, const AdapterConfig& adapter) {
  const std::int64_t of_adapter = adapter.targets().labels, labels = of_adapter > 0 ? of_adapter : config.labels;
  return labels > 0 ? Head::classifier(labels) : Head::language_model;
}

void require_classifier(const ModelConfig& config, std::string_view stage) {
  if (config.model_type.starts_with(kNoClassifierPrefix))
    fail_config("{} is not implemented for model_type {}: transformers lays out its classifier differently; use another model",
                stage, config.model_type);
}

std::string classifier_config(const std::string& text, const ModelConfig& config, std::int64_t labels,
                              std::string_view problem_type) {
  auto json = nlohmann::ordered_json::parse(text);
  std::string name = config.architecture;
  QFT_ASSERT(name.ends_with(kLanguageModelClass), "{} is not a language model's class", name);
  name.replace(name.size() - kLanguageModelClass.size(), kLanguageModelClass.size(), kClassifierClass);
  json["architectures"] = {name};
  const auto names = json.find("id2label");
  if (names == json.end() || !names->is_object() || static_cast<std::int64_t>(names->size()) != labels) {
    auto id2label = nlohmann::ordered_json::object(), label2id = id2label;
    for (std::int64_t i = 0; i < labels; ++i) {
      const std::string label = fmt::format("LABEL_{}", i);
      id2label[std::to_string(i)] = label;
      label2id[label] = i;
    }
    json["id2label"] = std::move(id2label);
    json["label2id"] = std::move(label2id);
  }
  json.erase("num_labels");
  if (!problem_type.empty()) json["problem_type"] = problem_type;
  json["tie_word_embeddings"] = false;
  return json.dump(2) + "\n";
}

std::string with_pad_token(const std::string& model_config, const std::filesystem::path& tokenizer) {
  const auto id = padding_id(tokenizer);
  if (!id) return model_config;
  auto config = nlohmann::ordered_json::parse(model_config);
  config["pad_token_id"] = *id;
  return config.dump(2) + "\n";
}

}  // namespace qft::model

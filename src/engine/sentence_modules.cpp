#include "sentence_modules.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/sentence_files.h"
#include "qft/tokenizer/tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kKnownModules[] = {model::kTransformerModule, model::kPoolingModule, model::kNormalizeModule,
                                              model::kLogitScoreModule};
constexpr const char* kLastToken = "lasttoken";
/// Boolean keys of older files: their prefix, and the one that is allowed.
constexpr std::string_view kLegacyPrefix = "pooling_mode_", kLegacyLastToken = "pooling_mode_lasttoken";

fs::path described_folder(const config::RunConfig& config) {
  const std::vector<fs::path> adapters = config.adapter_paths();
  return model::sentence_folder(config.model_path(), adapters.empty() ? fs::path() : adapters.back());
}

/// A module's configuration and its file.
struct ModuleConfig {
  fs::path file;
  json values;
};

std::optional<ModuleConfig> config_of_module(const fs::path& dir, std::string_view kind) {
  for (const model::SentenceModule& module : model::sentence_modules(dir)) {
    if (module.kind != kind) continue;
    const fs::path file = member_at(dir, module.folder.empty() ? io::kModelConfigFile : module.folder + "/config.json");
    if (!fs::exists(file))
      fail_config("'{}' names the module {}, but '{}' does not exist: copy the folder whole",
                  (dir / model::kModulesFile).string(), kind, file.string());
    json values = io::read_json(file);
    require(values.is_object(), "'{}' is not a JSON object", file.string());
    return ModuleConfig{file, std::move(values)};
  }
  return std::nullopt;
}

void require_last_token(const ModuleConfig& pooling) {
  const auto refuse = [&](std::string_view key, const json& value) {
    fail_config(
        "'{}': {} is {}, and only pooling by the last token is implemented: use a model with this pooling, or set pooling_mode to "
        "\"{}\" there (and remove the keys {}*) to train a model of last tokens from these weights",
        pooling.file.string(), key, value.dump(), kLastToken, kLegacyPrefix);
  };
  // sentence-transformers ignores the older keys beside this one.
  if (const auto mode = pooling.values.find("pooling_mode"); mode != pooling.values.end()) {
    if (*mode != kLastToken && *mode != json::array({kLastToken})) refuse("pooling_mode", *mode);
    return;
  }
  for (const auto& [key, value] : pooling.values.items())
    if (key.starts_with(kLegacyPrefix) && key != kLegacyLastToken && value == true) refuse(key, value);
  const json last = pooling.values.value(std::string(kLegacyLastToken), json());
  if (last != true) refuse(kLegacyLastToken, last);
}

void require_embedding_modules(const fs::path& dir, bool trains) {
  if (const auto pooling = config_of_module(dir, model::kPoolingModule)) require_last_token(*pooling);
  const auto modules = model::sentence_modules(dir);
  if (!trains && std::ranges::find(modules, model::kNormalizeModule, &model::SentenceModule::kind) == modules.end())
    log::warn_once(
        fmt::format("'{}' has no module Normalize: sentence-transformers gives vectors of any length, qft divides them by "
                    "their length",
                    (dir / model::kModulesFile).string()));
}

/// The tokens of a LogitScore module; without a negative one the score would be a single logit.
struct FolderTokens {
  fs::path file;
  AnswerTokens tokens;
};

std::optional<FolderTokens> tokens_of_folder(const fs::path& dir, std::int32_t vocabulary) {
  if (dir.empty()) return std::nullopt;
  const auto score = config_of_module(dir, model::kLogitScoreModule);
  if (!score) return std::nullopt;
  const auto id_of = [&](const char* key) {
    const json value = score->values.value(key, json());
    if (!value.is_number_integer() || value < 0 || value >= vocabulary)
      fail_config("'{}': {} is {}, but a score is the difference of two tokens' logits: write a token's id below {}",
                  score->file.string(), key, value.dump(), vocabulary);
    return value.get<std::int32_t>();
  };
  FolderTokens found{score->file, {id_of("true_token_id"), id_of("false_token_id")}};
  if (found.tokens.positive == found.tokens.negative)
    fail_config("'{}': true_token_id and false_token_id are both {}: name two tokens", score->file.string(),
                found.tokens.positive);
  return found;
}

/// Returns the id of the key's word, else `fallback`, else the id of `usual`.
std::int32_t answer_id(const config::RunConfig& config, const tokenizer::Tokenizer& tokenizer, std::string_view key,
                       const std::string& word, std::optional<std::int32_t> fallback, const char* usual) {
  if (word.empty() && fallback) return *fallback;
  const std::string& sought = word.empty() ? usual : word;
  if (const auto id = tokenizer.token_to_id(sought)) return *id;
  fail_config("{} is '{}', which is not one token of the tokenizer in '{}': name a token, as it stands in the vocabulary", key,
              sought, config.tokenizer_path());
}

AnswerTokens chosen_tokens(const config::RunConfig& config, const tokenizer::Tokenizer& tokenizer,
                           const std::optional<FolderTokens>& folder) {
  const config::FinetuningArgs& f = config.finetuning;
  const auto fallback = [&](std::int32_t AnswerTokens::* token) {
    return folder ? std::optional(folder->tokens.*token) : std::nullopt;
  };
  return {answer_id(config, tokenizer, "reranker_positive_token", f.reranker_positive_token, fallback(&AnswerTokens::positive),
                    "yes"),
          answer_id(config, tokenizer, "reranker_negative_token", f.reranker_negative_token, fallback(&AnswerTokens::negative),
                    "no")};
}

/// Compares the run's tokens with the folder's.
void compare_tokens(const AnswerTokens& ours, const FolderTokens& folder, const tokenizer::Tokenizer& tokenizer, bool trains) {
  const AnswerTokens theirs = folder.tokens;
  const auto words = [&](const AnswerTokens& t) {
    return fmt::format("'{}' ({}) and '{}' ({})", tokenizer.id_to_token(t.positive), t.positive,
                       tokenizer.id_to_token(t.negative), t.negative);
  };
  if (ours == theirs) {
    log::info("the reranker's answers are {}, from '{}'", words(theirs), folder.file.string());
  } else if (trains) {
    log::warn_once(fmt::format("training uses the answers {}, but '{}' has {}: the model was trained with those", words(ours),
                               folder.file.string(), words(theirs)));
  } else {
    fail_config(
        "the keys reranker_positive_token and reranker_negative_token ask for the answers {}, but '{}' has {}: remove the keys",
        words(ours), folder.file.string(), words(theirs));
  }
}

/// Throws ConfigError for an embedding model and a generative reranker, which have no head. `words`: the run's stage.
void require_other_model(const fs::path& dir, std::string_view words, std::string_view remedy) {
  const model::SentenceModel kind = model::sentence_model(dir);
  const bool embeds = kind == model::SentenceModel::embedding;
  if (!embeds && kind != model::SentenceModel::generative) return;
  fail_config("'{}' is of {}, and {}: set {}{}", (dir / model::kModulesFile).string(),
              embeds ? "an embedding model" : "a generative reranker", words, sentence_keys(dir), remedy);
}

}  // namespace

std::string sentence_keys(const fs::path& dir) {
  switch (dir.empty() ? model::SentenceModel::none : model::sentence_model(dir)) {
    case model::SentenceModel::none:
      break;
    case model::SentenceModel::embedding:
      return "stage: embedding";
    case model::SentenceModel::generative:
      return "stage: reranker and reranker_type: generative";
    case model::SentenceModel::other:
      return kClassificationKeys;
  }
  return {};
}

void require_modules(const config::RunConfig& config, const ModelSource& source) {
  const config::Stage& stage = config.stage();
  const bool embeds = stage.head == config::HeadKind::vector;
  const bool uses_modules = embeds || stage.sample == config::SampleKind::ranking;
  if (!uses_modules && (source.trains() || config.is_given("stage"))) return;
  const fs::path dir = described_folder(config);
  if (dir.empty()) return;
  if (!uses_modules)
    return require_other_model(dir, fmt::format("stage is {}", config.finetuning.stage),
                               " and use qft score, or write stage: sft to use it as a language model");
  for (const model::SentenceModule& module : model::sentence_modules(dir))
    if (std::ranges::find(kKnownModules, module.kind) == std::end(kKnownModules))
      fail_config(
          "'{}': the module {} is not implemented (implemented: {}), and stage {} would leave it out: use a model without it",
          (dir / model::kModulesFile).string(), module.kind, fmt::join(kKnownModules, ", "), config.finetuning.stage);
  if (embeds) require_embedding_modules(dir, source.trains());
  if (stage.classifies() && !source.trains()) require_other_model(dir, "reranker_type is classification", "");
}

AnswerTokens answer_tokens(const config::RunConfig& config, bool trains) {
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto folder = tokens_of_folder(described_folder(config), tokenizer->vocab_size());
  const AnswerTokens tokens = chosen_tokens(config, *tokenizer, folder);
  if (folder) compare_tokens(tokens, *folder, *tokenizer, trains);
  return tokens;
}

}  // namespace qft::engine

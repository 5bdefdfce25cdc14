#include "qft/engine/sentence_transformers.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/encode/chat_template.h"
#include "qft/io/companion_files.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/config.h"
#include "qft/model/sentence_files.h"
#include "qft/model/tokenizer_changes.h"
#include "qft/tokenizer/tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kPooling = "1_Pooling/config.json";
constexpr const char* kLogitScore = "1_LogitScore/config.json";

/// The tokens that the template puts before and behind every text.
struct Surroundings {
  std::vector<std::int32_t> before, behind;
};

/// Returns the tokens around a user's text; none if they depend on the text, or if the template changes the text. White space at
/// the start of a text is not tried: it joins line breaks of most chat templates.
std::optional<Surroundings> surroundings(const encode::ChatTemplate& chat) {
  std::optional<Surroundings> around;
  for (const char* text :
       {"zebra 42 crossings", "A line.\nAnother line?", "(x) = 'y'", "1", "\u00e9t\u00e9 \u4f60\u597d", "ends with a space "}) {
    const std::vector<std::int32_t> own = chat.tokenizer().encode(text);
    const std::vector<std::int32_t> shown = chat.render_prompt(std::vector<encode::Message>{{encode::Role::user, text}});
    if (!around) {
      const auto at = std::ranges::search(shown, own);
      if (at.empty()) return std::nullopt;
      around = Surroundings{{shown.begin(), at.begin()}, {at.end(), shown.end()}};
    }
    std::vector<std::int32_t> joined = around->before;
    joined.insert(joined.end(), own.begin(), own.end());
    joined.insert(joined.end(), around->behind.begin(), around->behind.end());
    if (joined != shown) return std::nullopt;
  }
  return around;
}

ordered_json module_entry(int index, const char* path, const char* type) {
  return {{"idx", index}, {"name", std::to_string(index)}, {"path", path}, {"type", type}};
}

/// Returns the post-processor with a template that puts these tokens around each text. Other templates go: they add tokens that
/// training did not.
ordered_json surrounding(const ordered_json& old, const Surroundings& around, const tokenizer::Tokenizer& tokenizer) {
  ordered_json steps = ordered_json::array();
  const auto keep = [&](const ordered_json& step) {
    if (step.is_object() && step.value("type", "") != "TemplateProcessing") steps.push_back(step);
  };
  if (old.is_object() && old.value("type", "") == "Sequence")
    for (const ordered_json& step : old.value("processors", ordered_json::array())) keep(step);
  else
    keep(old);
  ordered_json specials = ordered_json::object();
  const auto add_text = [&](ordered_json& pieces, const char* name, int type) {
    const auto add_tokens = [&](const std::vector<std::int32_t>& ids) {
      for (const std::int32_t id : ids) {
        const std::string token = tokenizer.id_to_token(id);
        specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
        pieces.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      }
    };
    add_tokens(around.before);
    pieces.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    add_tokens(around.behind);
  };
  ordered_json single = ordered_json::array(), pair = ordered_json::array();
  add_text(single, "A", 0);
  add_text(pair, "A", 0);
  add_text(pair, "B", 1);
  steps.push_back({{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", specials}});
  return {{"type", "Sequence"}, {"processors", std::move(steps)}};
}

/// Collects files and writes them.
class FolderWriter {
 public:
  FolderWriter(io::Storage& storage, const fs::path& dir) : storage_(storage), dir_(dir) {}
  void add(const char* name, const ordered_json& content) {
    const fs::path file = name;
    if (file.has_parent_path()) storage_.create_directory(dir_ / file.parent_path());
    io::write_file(storage_, dir_ / file, content.dump(2) + "\n");
    written_.push_back(file);
  }
  std::vector<fs::path> written() && { return std::move(written_); }

 private:
  io::Storage& storage_;
  fs::path dir_;
  std::vector<fs::path> written_;
};

/// Returns the base model's settings; an empty object if it has none.
ordered_json settings_of(const fs::path& base) {
  if (!fs::is_regular_file(base / model::kSentenceSettingsFile)) return ordered_json::object();
  auto settings = ordered_json::parse(io::read_text_file(base / model::kSentenceSettingsFile), nullptr, false);
  return settings.is_object() ? settings : ordered_json::object();
}

ordered_json prompts_of(const ordered_json& settings) {
  const auto prompts = settings.find("prompts");
  return prompts != settings.end() && prompts->is_object() ? *prompts : ordered_json::object();
}

std::string text_at(const ordered_json& object, const std::string& key) {
  const auto value = object.find(key);
  return value != object.end() && value->is_string() ? value->get<std::string>() : std::string();
}

/// Keeps the base's default prompt, which encode() puts before every text, only if training put it too. Without prompts of their
/// own, queries and documents would get it as well.
void keep_default_prompt(const ordered_json& base, const config::RunConfig& config, ordered_json& settings) {
  const std::string name = text_at(base, "default_prompt_name");
  if (name.empty()) return;
  const std::string text = text_at(settings["prompts"], name);
  const std::string &query = config.data.query_prompt, &document = config.data.document_prompt;
  if (text == query || text == document) {
    settings["default_prompt_name"] = name;
    settings["prompts"].emplace("query", query);
    settings["prompts"].emplace("document", document);
    return;
  }
  log::warn_once(fmt::format(
      "'{}': default_prompt_name '{}' is not kept, because training did not put this prompt: set query_prompt to \"{}\" "
      "to train with it",
      (fs::path(config.model_path()) / model::kSentenceSettingsFile).string(), name, text));
}

/// Makes the tokenizer of `dir` put these tokens around each text.
void surround_texts(const fs::path& dir, const Surroundings& around, const tokenizer::Tokenizer& tokenizer,
                    FolderWriter& writer) {
  auto file = ordered_json::parse(io::read_text_file(member_of(dir, io::kTokenizerFile)));
  const ordered_json before = file.value("post_processor", ordered_json());
  ordered_json after = surrounding(before, around, tokenizer);
  if (after == before) return;
  file["post_processor"] = std::move(after);
  writer.add(io::kTokenizerFile, file);
}

/// The kinds of input that sentence-transformers accepts, both with this output of the model.
ordered_json inputs_with(const char* output) {
  const ordered_json text = {{"method", "forward"}, {"method_output_name", output}};
  ordered_json message = text;
  message["format"] = "flat";
  return {{"text", text}, {"message", message}};
}

/// Has sentence-transformers put texts through the chat template as a user's messages. It accepts plain texts only if "text" is
/// listed beside "message", which it then prefers.
void write_message_form(FolderWriter& writer) {
  writer.add(model::kSentenceTransformerFile, {{"transformer_task", "feature-extraction"},
                                               {"modality_config", inputs_with("last_hidden_state")},
                                               {"processing_kwargs", {{"chat_template", {{"add_generation_prompt", true}}}}},
                                               {"module_output_name", "token_embeddings"}});
}

ordered_json settings_of_embedding(const config::RunConfig& config) {
  const ordered_json base = settings_of(config.model_path());
  ordered_json settings = {{"model_type", "SentenceTransformer"},
                           {"prompts", prompts_of(base)},
                           {"default_prompt_name", nullptr},
                           {"similarity_fn_name", "cosine"}};
  for (const auto& [name, prompt] : {std::pair("query", config.data.query_prompt), {"document", config.data.document_prompt}})
    if (!prompt.empty()) settings["prompts"][name] = prompt;
  keep_default_prompt(base, config, settings);
  return settings;
}

void write_embedding(const config::RunConfig& config, const encode::ChatTemplate& chat, std::int64_t hidden_size,
                     const fs::path& dir, FolderWriter& writer) {
  writer.add(model::kModulesFile, {module_entry(0, "", "sentence_transformers.models.Transformer"),
                                   module_entry(1, "1_Pooling", "sentence_transformers.models.Pooling"),
                                   module_entry(2, "2_Normalize", "sentence_transformers.models.Normalize")});
  ordered_json pooling = {{"word_embedding_dimension", hidden_size}};
  for (const char* mode : {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"})
    pooling[std::string("pooling_mode_") + mode] = mode == std::string_view("lasttoken");
  pooling["include_prompt"] = true;
  writer.add(kPooling, pooling);
  writer.add(model::kSentenceSettingsFile, settings_of_embedding(config));
  if (const auto around = surroundings(chat)) return surround_texts(dir, *around, chat.tokenizer(), writer);
  write_message_form(writer);
  if (!config.data.query_prompt.empty() || !config.data.document_prompt.empty())
    log::warn_once(
        "query_prompt and document_prompt: sentence-transformers puts prompts into a system message, because template '" +
        chat.spec().name +
        "' changes texts, but training put them before the texts: write the prompt into each text and call encode()");
}

ordered_json settings_of_reranker(const config::RunConfig& config) {
  return {{"model_type", "CrossEncoder"},
          {"activation_fn", "torch.nn.modules.activation.Sigmoid"},
          {"prompts", prompts_of(settings_of(config.model_path()))},
          {"default_prompt_name", nullptr}};
}

void write_reranker(const config::RunConfig& config, const model::Head& head, FolderWriter& writer) {
  const bool generative = head.kind == model::Head::Kind::token_difference;
  auto modules = ordered_json::array({module_entry(0, "", "sentence_transformers.base.modules.transformer.Transformer")});
  if (generative) {
    modules.push_back(module_entry(1, "1_LogitScore", "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"));
    writer.add(kLogitScore,
               {{"true_token_id", head.minuend}, {"false_token_id", head.subtrahend}, {"module_input_name", "causal_logits"}});
  }
  writer.add(model::kModulesFile, modules);
  ordered_json transformer = {{"transformer_task", generative ? "text-generation" : "sequence-classification"},
                              {"modality_config", inputs_with("logits")},
                              {"module_output_name", generative ? "causal_logits" : "scores"}};
  // Beside an adapter there is no config.json, and the base's may lack the padding token, which finds the last token of a text.
  const auto padding = model::padding_id(config.tokenizer_path());
  if (!generative && padding) transformer["config_kwargs"] = {{"pad_token_id", *padding}};
  writer.add(model::kSentenceTransformerFile, transformer);
  writer.add(model::kSentenceSettingsFile, settings_of_reranker(config));
}

}  // namespace

std::vector<fs::path> write_sentence_transformers(const config::RunConfig& config, const model::Head& head, io::Storage& storage,
                                                  const fs::path& dir) {
  const config::SampleKind sample = config.stage().sample;
  if (sample != config::SampleKind::texts && sample != config::SampleKind::ranking) return {};
  FolderWriter writer(storage, dir);
  if (sample == config::SampleKind::texts)
    write_embedding(config, encode::ChatTemplate::from_config(config, tokenizer::Tokenizer::load(config.tokenizer_path())),
                    head.values, dir, writer);
  else
    write_reranker(config, head, writer);
  return std::move(writer).written();
}

std::string sentence_settings(const config::RunConfig& config) {
  return (config.stage().sample == config::SampleKind::texts ? settings_of_embedding(config) : settings_of_reranker(config))
      .dump();
}

std::string without_task(const std::string& adapter_config, const model::ModelConfig& base) {
  auto config = nlohmann::json::parse(adapter_config);
  config["task_type"] = nullptr;
  config["auto_mapping"] = {{"base_model_class", base.architecture}, {"parent_library", model::modeling_module(base.model_type)}};
  return config.dump(2) + "\n";
}

}  // namespace qft::engine

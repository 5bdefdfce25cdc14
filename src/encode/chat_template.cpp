#include "qft/encode/chat_template.h"

#include "qft/config/run_config.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/encode/template_to_jinja.h"
#include "qft/io/companion_files.h"
#include "qft/io/file.h"

#include <algorithm>
#include <utility>

#include "jinja_parts.h"
#include "own_renderer.h"
#include "template_defaults.h"
#include "thought.h"
#include "yaml_renderer.h"
#include <fmt/ranges.h>

namespace qft::encode {
namespace {

constexpr std::string_view kLastResortEos = "<|endoftext|>";
constexpr std::string_view kOwn = kOwnTemplate, kPlain = "empty";
constexpr std::string_view kEmbedding = "qwen3_emb", kReranker = "qwen3_reranker";

bool is_token(const tokenizer::Tokenizer& tokenizer, const std::string& text) {
  const std::optional<std::int32_t> id = tokenizer.token_to_id(text);
  return id && tokenizer.encode(text) == std::vector{*id};
}

// Returns the first special token of a text.
std::optional<std::int32_t> first_special(const tokenizer::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids)
    if (tokenizer.is_special(id) || id == tokenizer.eos_id()) return id;
  return std::nullopt;
}

// The template that a run uses: a YAML template by name, or a Jinja template.
struct Choice {
  std::string name;
  std::optional<ModelChatTemplate> own;
  std::filesystem::path tokens = {};  // the folder with the special tokens that `own` may name
};

void log_once(const std::string& note) {
  static std::string last_note;  // each part of the data would repeat the note
  if (std::exchange(last_note, note) != note) log::info("{}", note);
}

// The model's own template: from the last adapter, which was trained with it, else from the tokenizer.
Choice own_choice(const config::RunConfig& config) {
  Choice choice{std::string(kOwn), find_chat_template(config.tokenizer_path()), config.tokenizer_path()};
  const std::vector<std::filesystem::path> adapters = config.adapter_paths();
  if (adapters.empty()) return choice;
  auto trained = find_chat_template(adapters.back());
  if (!trained || (choice.own && choice.own->text == trained->text)) return choice;
  choice.own = std::move(trained);
  if (std::filesystem::is_regular_file(adapters.back() / io::kTokenizerConfigFile)) choice.tokens = adapters.back();
  return choice;
}

/// Returns the template of a stage whose models have a format of their own; "" if the model's chat template is the default.
std::string_view template_of_stage(const config::RunConfig& config) {
  const config::SampleKind sample = config.stage().sample;
  if (sample == config::SampleKind::ranking) return config.finetuning.reranker_type == "generative" ? kReranker : "";
  if (sample != config::SampleKind::texts) return "";
  if (!tokenizer::Tokenizer::load(config.tokenizer_path())->token_to_id(std::string(kLastResortEos))) return "";
  return embeds_plain_texts(config.tokenizer_path(), kLastResortEos) || !own_choice(config).own ? kEmbedding : "";
}

Choice choose(const config::RunConfig& config) {
  const config::DataArgs& data = config.data;
  if (!data.chat_template.empty()) {
    if (!data.template_name.empty() && data.template_name != kOwn)
      fail_config("chat_template is '{}', and template is '{}': a run has only one of the two; remove the other",
                  data.chat_template, data.template_name);
    if (!std::filesystem::is_regular_file(data.chat_template))
      fail_config("chat_template: there is no file '{}'; name a file with a Jinja template", data.chat_template);
    return {std::string(kOwn), ModelChatTemplate{io::read_text_file(data.chat_template), "", data.chat_template},
            config.tokenizer_path()};
  }
  if (data.template_name.empty() && config.stage().has_documents()) return {std::string(kPlain), std::nullopt};
  if (!data.template_name.empty() && data.template_name != kOwn) return {data.template_name, std::nullopt};
  if (const std::string_view name = data.template_name.empty() ? template_of_stage(config) : ""; !name.empty()) {
    log_once(fmt::format("template: {} (the default of stage {})", name, config.stage().name));
    return {std::string(name), std::nullopt};
  }
  Choice choice = own_choice(config);
  if (!choice.own)
    fail_config(
        "{}, and '{}' has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): name a "
        "template, one of {}, or a file in Jinja with chat_template",
        data.template_name.empty() ? "template is not given" : "template is 'own'", config.tokenizer_path(), list_templates());
  if (data.template_name.empty()) log_once(fmt::format("template: the model's own chat template, of '{}'", choice.own->origin));
  return choice;
}

TemplateOptions options_of(const config::RunConfig& config) {
  const config::DataArgs& data = config.data;
  TemplateOptions options;
  if (!data.default_system.empty() || config.is_given("default_system")) options.default_system = data.default_system;
  options.tool_format = data.tool_format;
  options.enable_thinking = data.enable_thinking;
  options.preserve_thinking = data.preserve_thinking;
  return options;
}

/// For Jinja: only the variables that the run gives. Missing ones keep the template's own defaults, as on servers.
TemplateOptions own_options_of(const config::RunConfig& config) {
  TemplateOptions options = options_of(config);
  const config::DataArgs& data = config.data;
  options.variables = Json::object();
  for (const auto& [name, value] : data.chat_template_kwargs.items())
    options.variables[name] = parse_python_json(value.dump(), name);
  const bool thinks = config.is_given("enable_thinking") && data.enable_thinking.has_value();
  if (thinks) options.variables["enable_thinking"] = *data.enable_thinking;
  if (!thinks)
    options.enable_thinking = options.variables.contains("enable_thinking") && options.variables["enable_thinking"] == false
                                  ? std::optional<bool>(false)
                                  : std::optional<bool>();
  if (data.preserve_thinking) options.variables["preserve_thinking"] = true;
  return options;
}

// Rejects options that only YAML templates support or that the template never reads.
void check_own_options(const OwnRenderer& renderer, const TemplateOptions& options, const std::string& origin) {
  if (!options.tool_format.empty() && !renderer.writes_calls_as(find_tool_format(options.tool_format)))
    fail_config(
        "tool_format is '{}', but the chat template of '{}' writes calls differently; remove tool_format, or name a YAML "
        "template with template",
        options.tool_format, origin);
  if (options.default_system && options.default_system->empty())
    fail_config(
        "default_system is empty, but the chat template of '{}' has its own text for conversations without a system "
        "message; remove default_system, or name a YAML template with template",
        origin);
  for (const char* name : {"messages", "tools", "add_generation_prompt"})
    if (options.variables.contains(name))
      fail_config("chat_template_kwargs has '{}', which each conversation sets; remove it", name);
  if (options.preserve_thinking && !renderer.reads("preserve_thinking"))
    fail_config(
        "preserve_thinking is true, but the chat template of '{}' does not read it; remove it, or name a YAML template with "
        "template",
        origin);
  const std::vector<std::string> unread = renderer.unread(options.variables);
  if (!unread.empty())
    log::warn("the chat template of '{}' does not read {}: {} no effect", origin, fmt::join(unread, ", "),
              unread.size() == 1 ? "it has" : "they have");
}

}  // namespace

std::vector<Message> with_answer(const Conversation& conversation, const Message& response) {
  std::vector<Message> messages;
  messages.reserve(conversation.prompt.size() + 1);
  messages = conversation.prompt;
  messages.push_back(response);
  return messages;
}

void append_weight_run(std::int32_t end, float weight, std::vector<WeightRun>& runs) {
  if (!runs.empty() && runs.back().weight == weight)
    runs.back().end = end;
  else
    runs.push_back({end, weight});
}

std::vector<WeightedText> split_by_weight(std::string_view text, const Message& answer, std::string_view question,
                                          const TurnWeighing& weighing) {
  if (answer.weight || weighing.schemes == nullptr) return {{text, answer.weight.value_or(1.0F)}};
  return weighing.schemes->split(text, question);
}

void append_parts(const tokenizer::Tokenizer& tokenizer, std::span<const WeightedText> parts, std::vector<std::int32_t>& ids,
                  std::vector<WeightRun>& runs) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += parts[i].text;
    if (i + 1 < parts.size() && parts[i + 1].weight == parts[i].weight) continue;
    tokenizer.encode(text, ids);
    append_weight_run(static_cast<std::int32_t>(ids.size()), parts[i].weight, runs);
    text.clear();
  }
}

ChatTemplate::ChatTemplate(TemplateSpec spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                           const TemplateOptions& options)
    : spec_(std::move(spec)), tokenizer_(std::move(tokenizer)), options_(options) {
  if (!options_.tool_format.empty()) set_tool_format(spec_, options_.tool_format);
  if (options_.default_system) spec_.default_system = *options_.default_system;
  check_special_tokens();
  if (!spec_.pack_only.empty())
    log::warn("template '{}' is for {} models, which qft does not train: {}", spec_.name, spec_.pack_only,
              options_.lenient ? "the pack is for another program" : "this model uses another format");
  if (spec_.replace_eos)
    eos_id_ = tokenizer_->token_to_id(spec_.stop_words.front());
  else
    eos_id_ = tokenizer_->eos_id() ? tokenizer_->eos_id() : tokenizer_->token_to_id(kLastResortEos);
  if (const auto end = end_of_answer(spec_, eos_id_ ? tokenizer_->id_to_token(*eos_id_) : ""))
    answer_end_ = tokenizer_->token_to_id(*end);
  renderer_ = std::make_shared<YamlRenderer>(spec_, tokenizer_, options_, eos_id_);
}

ChatTemplate::ChatTemplate(const ModelChatTemplate& own, const std::filesystem::path& tokenizer_dir,
                           std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options), is_jinja_(true), jinja_(own.text) {
  spec_.name = kOwn;
  spec_.origin = own.origin;
  auto renderer = std::make_shared<OwnRenderer>(own, tokenizer_dir, tokenizer_, options_);
  check_own_options(*renderer, options_, own.origin);
  if (renderer->ending()) {
    const std::vector<std::int32_t> ids = tokenizer_->encode(*renderer->ending());
    eos_id_ = first_special(*tokenizer_, ids);
    const bool has_eos = tokenizer_->eos_id() && std::ranges::find(ids, *tokenizer_->eos_id()) != ids.end();
    answer_end_ = has_eos ? tokenizer_->eos_id() : eos_id_;
    if (!answer_end_)
      log::warn_once(fmt::format(
          "the chat template of '{}' has no special token after an answer, so a model trained with it does not learn to end "
          "an answer. Copy the template, write {{{{ eos_token }}}} after answers, and name the copy with chat_template",
          own.origin));
  }
  if (!eos_id_) eos_id_ = tokenizer_->eos_id() ? tokenizer_->eos_id() : tokenizer_->token_to_id(kLastResortEos);
  for (const std::string& name : renderer->unread(options_.variables)) options_.variables.erase(name);
  renderer_ = std::move(renderer);
}

ChatTemplate ChatTemplate::from_config(const config::RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                       bool fixed_date) {
  const Choice choice = choose(config);
  if (choice.own) {
    TemplateOptions options = own_options_of(config);
    options.fixed_date = fixed_date;
    return ChatTemplate(*choice.own, choice.tokens, std::move(tokenizer), options);
  }
  if (!config.data.chat_template_kwargs.empty())
    fail_config("chat_template_kwargs are variables of a chat template in Jinja, but template is '{}': remove one of the two",
                choice.name);
  return ChatTemplate(find_template(choice.name), std::move(tokenizer), options_of(config));
}

ChatTemplate ChatTemplate::for_packing(const config::RunConfig& config) {
  const Choice choice = choose(config);
  auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  if (choice.own) {
    TemplateOptions options = own_options_of(config);
    options.fixed_date = true;
    return ChatTemplate(*choice.own, choice.tokens, std::move(tokenizer), options);
  }
  TemplateSpec spec = find_template(choice.name);
  TemplateOptions options = options_of(config);
  options.lenient = true;
  const std::int32_t vocab_size = tokenizer->vocab_size();
  const auto is_missing = [&](const std::string& word) { return !is_token(*tokenizer, word); };
  if (std::any_of(spec.stop_words.begin(), spec.stop_words.end(), is_missing))
    tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path(), spec.stop_words);
  for (std::int32_t id = vocab_size; id < tokenizer->vocab_size(); ++id)
    log::warn(
        "template '{}' adds '{}' to the vocabulary as token {}: the model and its tokenizer must have it too "
        "before they are trained on this",
        spec.name, tokenizer->id_to_token(id), id);
  return ChatTemplate(std::move(spec), std::move(tokenizer), options);
}

std::optional<ChatTemplate> ChatTemplate::own_for_comparison(const config::RunConfig& config,
                                                             std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  const std::string& name = config.data.template_name;
  const bool is_jinja = name == kOwn || (name.empty() && config.data.chat_template.empty());
  const bool is_own_format = config.stage().limits != nullptr;  // texts and rankings are no conversations
  if (is_jinja || name == kPlain || config.stage().has_documents() || is_own_format) return std::nullopt;
  const Choice choice = own_choice(config);
  if (!choice.own) return std::nullopt;
  config::RunConfig plain = config;
  plain.data.tool_format.clear();
  plain.data.preserve_thinking = false;
  plain.data.chat_template_kwargs = nlohmann::json::object();
  TemplateOptions options = own_options_of(plain);
  if (options.default_system && options.default_system->empty()) options.default_system.reset();
  options.fixed_date = true;
  return ChatTemplate(*choice.own, choice.tokens, std::move(tokenizer), options);
}

void ChatTemplate::check_special_tokens() const {
  for (const std::string& token : spec_.special_tokens()) {
    if (is_token(*tokenizer_, token)) continue;
    if (!options_.lenient)
      fail_config(
          "template '{}' ({}) does not fit the tokenizer: '{}' is not one of its added tokens. Choose the "
          "template of this model family, or a tokenizer that has the token",
          spec_.name, spec_.origin, token);
    log::warn("template '{}' ({}): '{}' is not a token of the tokenizer: it is encoded as plain text", spec_.name, spec_.origin,
              token);
  }
}

std::vector<TrainingSample> ChatTemplate::training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                           const TurnWeighing& weighing) const {
  return renderer_->training_samples(conversation, choice, weighing);
}

Exchange ChatTemplate::encode_answer(const Conversation& conversation, const Message& response, bool learns_thought) const {
  return renderer_->answer(conversation, response, learns_thought);
}

bool ChatTemplate::has_thought(const Message& answer) const {
  const auto has = [&](std::string_view mark) { return answer.text.find(stripped(mark)) != std::string::npos; };
  return (answer.thought && !stripped(*answer.thought).empty()) || has(spec_.thought_open) || has(spec_.thought_close);
}

std::vector<std::int32_t> ChatTemplate::render_prompt(std::span<const Message> messages, std::string_view system) const {
  Conversation conversation;
  conversation.prompt.assign(messages.begin(), messages.end());
  conversation.system = system;
  return render_prompt(conversation);
}

std::vector<std::int32_t> ChatTemplate::render_prompt(const Conversation& conversation) const {
  const std::vector<Message>& messages = conversation.prompt;
  require(messages.size() % 2 == 1, "a prompt of {} messages: it must end with the user's turn", messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i)
    require(is_answer(messages[i].role) == (i % 2 == 1),
            "message {} of the prompt is out of turn: users and observations alternate with answers and calls", i + 1);
  return renderer_->prompt(conversation);
}

std::vector<std::int32_t> ChatTemplate::stop_token_ids() const {
  std::vector<std::int32_t> ids;
  if (eos_id_) ids.push_back(*eos_id_);
  if (is_jinja_ && tokenizer_->eos_id()) ids.push_back(*tokenizer_->eos_id());
  for (const std::string& word : spec_.stop_words) ids.push_back(*tokenizer_->token_to_id(word));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string ChatTemplate::document_end() const {
  if (!spec_.document_end.empty()) return spec_.document_end;
  if (!eos_id_) fail_config("stage pt ends each document with the tokenizer's end token, but the tokenizer has none");
  return tokenizer_->id_to_token(*eos_id_);
}

std::string ChatTemplate::jinja() const {
  return is_jinja_ ? with_defaults(jinja_, options_) : std::string();
}

std::string ChatTemplate::hash() const {
  return renderer_->hash();
}

config::RunConfig with_template(const config::RunConfig& config, const std::string& name) {
  config::RunConfig other = config;
  other.data.template_name = name;
  other.data.chat_template.clear();
  if (name != kOwnTemplate) other.data.chat_template_kwargs = nlohmann::json();
  return other;
}

}  // namespace qft::encode

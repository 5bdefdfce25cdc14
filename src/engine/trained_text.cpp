#include "qft/engine/trained_text.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/encode/chat_template.h"
#include "qft/encode/template_comparison.h"
#include "qft/encode/template_to_jinja.h"
#include "qft/io/companion_files.h"
#include "qft/tokenizer/tokenizer.h"

#include <string>
#include <utility>

namespace qft::engine {
namespace {

namespace fs = std::filesystem;

/// Placeholders of an image and a video in the texts of Qwen's vision models, if their own template has them.
constexpr const char* kImage = "<|vision_start|><|image_pad|><|vision_end|>";
constexpr const char* kVideo = "<|vision_start|><|video_pad|><|vision_end|>";

std::string token_text(const tokenizer::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  return id ? tokenizer.id_to_token(*id) : std::string();
}

encode::JinjaOptions jinja_options(const config::RunConfig& config, const encode::ChatTemplate& chat, const std::string& own) {
  const bool sees = own.find("image_pad") != own.npos;
  return {.bos = token_text(chat.tokenizer(), chat.tokenizer().bos_id()),
          .eos = token_text(chat.tokenizer(), chat.eos_id()),
          .enable_thinking = config.data.enable_thinking,
          .preserve_thinking = config.data.preserve_thinking,
          .last_thought_only = config.data.mask_history,
          .image = sees ? kImage : "",
          .video = sees ? kVideo : ""};
}

/// Returns the trained template as Jinja. The only place that knows the kinds of templates.
std::string jinja_of(const config::RunConfig& config, const encode::ChatTemplate& chat, const std::string& own) {
  return chat.is_jinja() ? chat.jinja() : encode::to_jinja(chat.spec(), jinja_options(config, chat, own));
}

bool names_template(const config::RunConfig& config) {
  return !config.data.template_name.empty() || !config.data.chat_template.empty();
}

const std::string& template_of(const config::RunConfig& config) {
  return config.data.chat_template.empty() ? config.data.template_name : config.data.chat_template;
}

/// True if both render the same text, with the saved end token.
bool render_same(const tokenizer::Tokenizer& tokenizer, const std::string& a, const std::string& b,
                 const model::TokenizerChanges& changes) {
  Json tokens = Json::object();
  tokens["bos_token"] = token_text(tokenizer, tokenizer.bos_id());
  tokens["eos_token"] = changes.end_token.value_or(token_text(tokenizer, tokenizer.eos_id()));
  return encode::render_alike(a, b, tokens);
}

std::string described(const model::TokenizerChanges& changes) {
  std::string text = changes.chat_template ? "chat template" : "";
  if (changes.end_token) text += fmt::format("{}end token '{}'", text.empty() ? "" : " and ", *changes.end_token);
  return text;
}

/// Describes how the adapter's folder differs from the run file, for a warning; empty if they agree.
std::string difference_from(const config::RunConfig& config, const model::TokenizerChanges& theirs,
                            const model::TokenizerChanges& ours) {
  if (theirs.end_token && theirs.end_token != ours.end_token)
    return fmt::format("its answers end with '{}', but template '{}' ends answers with '{}'", *theirs.end_token,
                       template_of(config), ours.end_token.value_or("no token"));
  if (!theirs.chat_template) return {};
  const auto own = io::read_chat_templates(config.tokenizer_path()).main;
  const std::string now = ours.chat_template ? *ours.chat_template : own.value_or("");
  if (render_same(*tokenizer::Tokenizer::load(config.tokenizer_path()), *theirs.chat_template, now, ours)) return {};
  return fmt::format("its chat template differs from template '{}' with the keys of this run file", template_of(config));
}

/// An embedding model or a reranker generates no answers: the end token stays. A reranker's template shows a query and a
/// document.
model::TokenizerChanges text_of_vectors_or_scores(const config::RunConfig& config, const encode::ChatTemplate& chat) {
  model::TokenizerChanges changes;
  const auto own = io::read_chat_templates(config.tokenizer_path()).main;
  if (config.stage().sample == config::SampleKind::ranking)
    changes.chat_template = encode::ranking_jinja(chat.spec(), jinja_of(config, chat, own.value_or("")));
  else if (!chat.is_jinja() && chat.spec().name != "qwen3_emb")
    changes.chat_template = jinja_of(config, chat, own.value_or(""));
  return changes;
}

}  // namespace

model::TokenizerChanges trained_text(const config::RunConfig& config) {
  model::TokenizerChanges changes;
  if (config.stage().has_documents()) return changes;
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = encode::ChatTemplate::from_config(config, tokenizer);
  if (config.stage().limits != nullptr) return text_of_vectors_or_scores(config, chat);
  if (changes.end_id = chat.answer_end(); changes.end_id) changes.end_token = tokenizer->id_to_token(*changes.end_id);
  const auto own = io::read_chat_templates(config.tokenizer_path()).main;
  std::string text = jinja_of(config, chat, own.value_or(""));
  if (!own || !render_same(*tokenizer, *own, text, changes)) changes.chat_template = std::move(text);
  return changes;
}

model::TokenizerChanges saved_text(const config::RunConfig& config) {
  try {
    return trained_text(config);
  } catch (const Error& e) {
    log::warn("the chat template and end token of the training are unknown, so those of '{}' are written: {}",
              config.tokenizer_path(), e.what());
    return {};
  }
}

model::TokenizerChanges exported_text(const config::RunConfig& config, const fs::path& adapter) {
  model::TokenizerChanges theirs;
  if (!adapter.empty()) theirs = model::changes_between(config.tokenizer_path(), adapter);
  if (!names_template(config)) {
    if (!theirs.note.empty()) log::warn("{}", theirs.note);
    if (theirs.any()) log::info("{} taken from '{}'", described(theirs), adapter.string());
    return theirs;
  }
  model::TokenizerChanges ours = saved_text(config);
  if (const std::string what = difference_from(config, theirs, ours); !what.empty())
    log::warn(
        "the adapter '{}' and the run file have different texts: {}. The run file's text is written; remove the key template to "
        "write the adapter's",
        adapter.string(), what);
  if (ours.any())
    log::info("{} of template '{}'{}", described(ours), template_of(config),
              ours.chat_template ? "" : ", the chat template of the base model renders the same");
  return ours;
}

}  // namespace qft::engine

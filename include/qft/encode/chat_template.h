// A chat template bound to a tokenizer: conversations to ids, for training and for generation.
#pragma once

#include "qft/config/data_args.h"
#include "qft/encode/conversation.h"
#include "qft/encode/template_spec.h"
#include "qft/encode/token_weights.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qft::config {
struct RunConfig;
}

namespace qft::encode {

class TemplateRenderer;

/// What a run may change of a template.
struct TemplateOptions {
  std::optional<std::string> default_system;  // unset: the template's own
  std::string tool_format;                    // empty: the template's own
  // Reasoning templates only. true: an empty thought is learned; false: thoughts are removed and the empty
  // one is part of the prompt; unset: as false, but thoughts in the data stay. The model's own template: false removes thoughts;
  // the template gets the value as a variable where the run gives one.
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;   // thoughts of earlier turns stay
  bool lenient = false;             // special tokens that the tokenizer lacks are a warning
  bool fixed_date = false;          // the model's own template sees the date of kTemplateDate, so that packs are reproducible
  Json variables = Json::object();  // of the model's own template: chat_template_kwargs, enable_thinking and others as given
};

/// What strftime_now() tells a template while data is packed: 26 July 2024, the date that Meta's templates have by themselves.
inline constexpr int kTemplateDate[3] = {2024, 7, 26};

/// One exchange: what is given and what is answered, each with the marks around it.
struct Turn {
  std::vector<std::int32_t> source, target;
  std::vector<WeightRun> source_weights = {}, target_weights = {};  // of their ids; empty: all count 1
  std::size_t answer = 0;                                           // which of the conversation's answers the target is, from 0
};

/// The turns of one sequence that is trained on.
using TrainingSample = std::vector<Turn>;

/// Which answers of a conversation are learned.
struct AnswerChoice {
  std::vector<bool> learned;  // of each answer, the last one included; empty: all are
  bool last_only = false;     // mask_history: the last answer alone, after the conversation as a chat has it then
};

/// How training_samples() weighs tokens.
struct TurnWeighing {
  const TokenWeights* schemes = nullptr;  // for answers without a weight of their own; null: these count 1
  bool prompts = false;                   // what is given is weighed, and learned, too
};

/// The chat template in a tokenizer's folder, and its namesakes for other uses.
struct ModelChatTemplate {
  std::string text;      // Jinja
  std::string tool_use;  // for conversations with tools; empty: the same
  std::string origin;    // the folder or file, for messages
};

/// Immutable and thread-safe.
class ChatTemplate {
 public:
  /// A template in YAML. Throws ConfigError where a special token of the template is not one added token of the tokenizer, or
  /// where the template needs an end token and there is none.
  ChatTemplate(TemplateSpec spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options = {});
  /// The model's own, or another in Jinja. `tokenizer_dir` has the special tokens that it may name. Throws ConfigError where it
  /// cannot be parsed, or options do not go with it.
  ChatTemplate(const ModelChatTemplate& own, const std::filesystem::path& tokenizer_dir,
               std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options);
  /// The template that the keys template, chat_template, chat_template_kwargs, default_system, tool_format, enable_thinking and
  /// preserve_thinking choose. Without `template` and `chat_template`: "empty" in stage pt, else the model's own (of the last
  /// adapter, where its folder has one), else ConfigError. `fixed_date`: as TemplateOptions has it.
  static ChatTemplate from_config(const config::RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                  bool fixed_date = false);
  /// The same for encoding alone, with the tokenizer of `config`: as in LLaMA-Factory, stop words that are no
  /// tokens are added to its vocabulary, and other marks that are none are plain text. Both are logged as
  /// warnings: a model that does not know the tokens cannot be trained on them.
  static ChatTemplate for_packing(const config::RunConfig& config);
  /// The model's own template beside the one that `config` names; nothing where they are the same, or there is none.
  static std::optional<ChatTemplate> own_beside(const config::RunConfig& config,
                                                std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

  /// Conversations with answers to learn, as sequences: one, or, where the model's own template shows earlier answers otherwise
  /// than the model says them, one for each group of answers that it shows so. Where parts of a text count differently, each is
  /// tokenised on its own, as in ms-swift. The marks behind an answer count 1; behind one whose end counts 0, and which is not
  /// the last, 0, unless prompts are weighed too. Throws Error where the template refuses the conversation, or has no place for a
  /// part of it.
  std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice = {},
                                               const TurnWeighing& weighing = {}) const;
  /// Everything up to the answer as source, `response` as target. `learns_thought`: another answer to the same question has a
  /// thought, so that an empty one belongs to this answer, and not to the question.
  Turn encode_answer(const Conversation& conversation, const Message& response, bool learns_thought = false) const;
  /// Whether an answer has a thought, in a key of its own or in its text.
  bool has_thought(const Message& answer) const;
  /// The ids up to where the model is to speak. `messages` ends with a user's or an observation's turn. An
  /// empty `system` means the template's own. Throws Error.
  std::vector<std::int32_t> render_prompt(std::span<const Message> messages, std::string_view system = {}) const;
  /// The same of a whole conversation without its answers.
  std::vector<std::int32_t> render_prompt(const Conversation& conversation) const;

  /// The end token: the first stop word where the template says so, else the tokenizer's; of the model's own template the first
  /// special token behind an answer. Nothing where there is none.
  std::optional<std::int32_t> eos_id() const { return eos_id_; }
  /// The token by which training teaches the model to end an answer; nothing where the template has none behind answers.
  std::optional<std::int32_t> answer_end() const { return answer_end_; }
  /// The end token and the stop words, rising, each once: generation ends at any of them.
  std::vector<std::int32_t> stop_token_ids() const;
  /// What follows a document in stage pt.
  std::string document_end() const;

  /// Of the model's own template a name, and the marks of thoughts.
  const TemplateSpec& spec() const { return spec_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const tokenizer::Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  bool is_own() const { return own_; }
  /// The text of the model's own template, or of the other one in Jinja, with the run's variables and system message as defaults;
  /// empty for one in YAML.
  std::string jinja() const;
  /// Hash of the template as it is used here, options included.
  std::string hash() const;

 private:
  void check_special_tokens() const;

  TemplateSpec spec_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  bool own_ = false;
  std::string jinja_;
  std::optional<std::int32_t> eos_id_, answer_end_;
  std::shared_ptr<const TemplateRenderer> renderer_;
};

/// `config` for a dataset with the template `name` of its own: the run's chat_template, and variables that the template does not
/// have, are left out.
config::RunConfig with_template(const config::RunConfig& config, const std::string& name);

/// The chat template of `tokenizer_dir` as transformers finds it (io/companion_files.h); nothing where there is none. Throws
/// Error where a file is broken.
std::optional<ModelChatTemplate> find_chat_template(const std::filesystem::path& tokenizer_dir);

}  // namespace qft::encode

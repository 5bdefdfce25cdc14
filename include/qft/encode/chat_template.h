// Encodes conversations with a chat template bound to a tokenizer, for training and for generation.
#pragma once

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

/// The template settings that a run may change.
struct TemplateOptions {
  std::optional<std::string> default_system;  // unset: the template's own
  std::string tool_format;                    // empty: the template's own
  // Only for reasoning templates. true: an empty thought is learned. false: thoughts are removed and the empty thought belongs
  // to the prompt. Unset: as false, but thoughts in the data stay. With the model's own template, false removes thoughts, and
  // the template receives the value as a variable if the run sets one.
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;   // thoughts of earlier turns stay
  bool lenient = false;             // special tokens that the tokenizer lacks cause a warning, not an error
  bool fixed_date = false;          // the model's own template sees kTemplateDate as the date, so that packs are reproducible
  Json variables = Json::object();  // for the model's own template: chat_template_kwargs, enable_thinking and others as given
};

/// The date that strftime_now() returns while data is packed: 26 July 2024, the default date of Meta's templates.
inline constexpr int kTemplateDate[3] = {2024, 7, 26};

/// One exchange: the given tokens (source) and the answer (target), each with the marks around it.
struct Exchange {
  std::vector<std::int32_t> source, target;
  // for the ids of source and target; empty: every id has weight 1
  std::vector<WeightRun> source_weights = {}, target_weights = {};
  // index of the answer in the conversation that `target` holds, from 0
  std::size_t answer = 0;
};

/// The exchanges of one training sequence.
using TrainingSample = std::vector<Exchange>;

/// Selects the answers of a conversation that are learned.
struct AnswerChoice {
  std::vector<bool> learned;  // one entry per answer, the last answer included; empty: all are learned
  bool last_only = false;     // mask_history: learn only the last answer, after the history as a chat shows it at that time
};

/// How training_samples() weighs tokens.
struct TurnWeighing {
  const TokenWeights* schemes = nullptr;  // for answers without a weight in the data; null: their weight is 1
  bool prompts = false;                   // prompts are weighted and learned too
};

/// The chat template in a tokenizer's folder, and its variant for tools.
struct ModelChatTemplate {
  std::string text;      // Jinja
  std::string tool_use;  // for conversations with tools; empty: same as `text`
  std::string origin;    // the folder or file, for messages
};

/// Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Binds a YAML template. Throws ConfigError if a special token of the template is not exactly one added token of the
  /// tokenizer, or if the template needs an end token and there is none.
  ChatTemplate(TemplateSpec spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options = {});
  /// Binds the model's own template or another Jinja template. `tokenizer_dir` provides the special tokens that the template
  /// may name. Throws ConfigError if the template cannot be parsed or does not support the options.
  ChatTemplate(const ModelChatTemplate& own, const std::filesystem::path& tokenizer_dir,
               std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options);
  /// Returns the template selected by the keys template, chat_template, chat_template_kwargs, default_system, tool_format,
  /// enable_thinking and preserve_thinking. Without `template` and `chat_template`, stage pt uses "empty" and other stages use
  /// the model's own template (from the last adapter if its folder has one); throws ConfigError if there is none. `fixed_date`:
  /// see TemplateOptions.
  static ChatTemplate from_config(const config::RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                  bool fixed_date = false);
  /// Like from_config(), but only for encoding, and loads the tokenizer of `config`. As in LLaMA-Factory, stop words that are
  /// not tokens are added to the vocabulary, and other marks that are not tokens become plain text. Both are logged as
  /// warnings: a model that does not know these tokens cannot be trained on them.
  static ChatTemplate for_packing(const config::RunConfig& config);
  /// Returns the model's own template for comparison with the one that `config` names; nothing if both are the same or the
  /// model has none.
  static std::optional<ChatTemplate> own_for_comparison(const config::RunConfig& config,
                                                        std::shared_ptr<const tokenizer::Tokenizer> tokenizer);

  /// Encodes a conversation with answers to learn. Returns one sequence, or several if the model's own template shows earlier
  /// answers differently from the way the model generates them: then one per group of answers that it shows correctly together.
  /// Text parts with different weights are tokenised separately, as in ms-swift. The marks after an answer have weight 1. If an
  /// answer's end has weight 0 and the answer is not the last, its marks have weight 0, unless prompts are weighted too. Throws
  /// Error if the template refuses the conversation or has no place for a part.
  std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice = {},
                                               const TurnWeighing& weighing = {}) const;
  /// Returns everything up to the answer as source and `response` as target. `learns_thought`: another answer to the same
  /// question has a thought, so an empty thought belongs to this answer and not to the question.
  Exchange encode_answer(const Conversation& conversation, const Message& response, bool learns_thought = false) const;
  /// Whether an answer has a thought, in a separate key or inside its text.
  bool has_thought(const Message& answer) const;
  /// Returns the ids up to the point at which the model starts to generate. `messages` ends with a user's or an observation's
  /// turn. An empty `system` selects the template's default. Throws Error.
  std::vector<std::int32_t> render_prompt(std::span<const Message> messages, std::string_view system = {}) const;
  /// Does the same for a whole conversation without its answers.
  std::vector<std::int32_t> render_prompt(const Conversation& conversation) const;

  /// The end token. In a YAML template: the first stop word if the template says so, else the tokenizer's end token. In the
  /// model's own template: the first special token after an answer. Nothing if there is none.
  std::optional<std::int32_t> eos_id() const { return eos_id_; }
  /// The token that training teaches the model to end an answer with; nothing if the template has no token after answers.
  std::optional<std::int32_t> answer_end() const { return answer_end_; }
  /// The end token and the stop words, ascending, without duplicates. Generation ends at any of them.
  std::vector<std::int32_t> stop_token_ids() const;
  /// The text after a document in stage pt.
  std::string document_end() const;

  /// For the model's own template, only the name and the marks of thoughts are set.
  const TemplateSpec& spec() const { return spec_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const tokenizer::Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  bool is_jinja() const { return is_jinja_; }
  /// The text of the Jinja template, with the run's variables and system message as defaults; empty for a YAML template.
  std::string jinja() const;
  /// Hash of the template with all its options.
  std::string hash() const;

 private:
  void check_special_tokens() const;

  TemplateSpec spec_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  bool is_jinja_ = false;
  std::string jinja_;
  std::optional<std::int32_t> eos_id_, answer_end_;
  std::shared_ptr<const TemplateRenderer> renderer_;
};

/// Returns `config` for a dataset with a separate template, `name`. Drops the run's chat_template and the variables that the
/// template does not have.
config::RunConfig with_template(const config::RunConfig& config, const std::string& name);

/// Reads the chat template in `tokenizer_dir` as transformers finds it (io/companion_files.h); nothing if there is none. Throws
/// Error if a file is broken.
std::optional<ModelChatTemplate> find_chat_template(const std::filesystem::path& tokenizer_dir);

}  // namespace qft::encode

// A chat template bound to a tokenizer: conversations to ids, for training and for generation.
#pragma once

#include "qft/config/data_args.h"
#include "qft/encode/conversation.h"
#include "qft/encode/template_spec.h"
#include "qft/encode/token_weights.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
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

struct ToolFormat;

/// What a run may change of a template.
struct TemplateOptions {
  std::optional<std::string> default_system;  // unset: the template's own
  std::string tool_format;                    // empty: the template's own
  // Reasoning templates only. true: an empty thought is learned; false: thoughts are removed and the empty
  // one is part of the prompt; unset: as false, but thoughts in the data stay.
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;  // thoughts of earlier turns stay
  bool lenient = false;            // special tokens that the tokenizer lacks are a warning
};

/// One exchange: what is given and what is answered, each with the marks around it.
struct Turn {
  std::vector<std::int32_t> source, target;
  std::vector<WeightRun> source_weights = {}, target_weights = {};  // of their ids; empty: all count 1
};

/// How encode_turns() weighs tokens.
struct TurnWeighing {
  const TokenWeights* schemes = nullptr;  // for answers without a weight of their own; null: these count 1
  bool prompts = false;                   // what is given is weighed too
};

/// Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Throws ConfigError where a special token of the template is not one added token of the tokenizer, or
  /// where the template needs an end token and there is none.
  ChatTemplate(TemplateSpec spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options = {});
  /// The template that the keys template, default_system, tool_format, enable_thinking and preserve_thinking
  /// choose. Without `template`: "empty" in stage pt, else the one that the model's own chat template shows, else ConfigError.
  static ChatTemplate from_config(const config::RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer);
  /// The same for encoding alone, with the tokenizer of `config`: as in LLaMA-Factory, stop words that are no
  /// tokens are added to its vocabulary, and other marks that are none are plain text. Both are logged as
  /// warnings: a model that does not know the tokens cannot be trained on them.
  static ChatTemplate for_packing(const config::RunConfig& config);

  /// All turns of prompt + response, for training on every answer. `last_thought_only`: thoughts of earlier
  /// answers are removed (and none is added there). Where parts of a text count differently, each is tokenised on its own, as in
  /// ms-swift. The marks behind an answer count 1; behind one whose end counts 0, and which is not the last, 0,
  /// unless prompts are weighed too. Throws Error
  /// where a call or a tool description is not valid JSON.
  std::vector<Turn> encode_turns(const Conversation& conversation, bool last_thought_only,
                                 const TurnWeighing& weighing = {}) const;
  /// Everything up to the answer as source, `response` as target.
  Turn encode_answer(const Conversation& conversation, const Message& response) const;
  /// The ids up to where the model is to speak. `messages` ends with a user's or an observation's turn. An
  /// empty `system` means the template's own; `tools` is a JSON list or empty. Throws Error.
  std::vector<std::int32_t> render_prompt(std::span<const Message> messages, std::string_view system = {},
                                          std::string_view tools = {}) const;

  /// The end token: the first stop word where the template says so, else the tokenizer's. Nothing where there is none.
  std::optional<std::int32_t> eos_id() const { return eos_id_; }
  /// The end token and the stop words, rising, each once: generation ends at any of them.
  std::vector<std::int32_t> stop_token_ids() const;
  /// What follows a document in stage pt.
  std::string document_end() const;

  const TemplateSpec& spec() const { return spec_; }
  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  bool keeps_thoughts() const { return options_.preserve_thinking; }
  /// Hash of the template as it is used here, options included.
  std::string hash() const;

 private:
  struct View;    // a conversation to encode: messages, system, tools
  struct Tokens;  // of a message, with what they count
  void check_special_tokens() const;
  static std::pair<TemplateSpec, TemplateOptions> choose(const config::RunConfig& config);
  std::vector<Tokens> encode(const View& view) const;
  void append_mark(const TurnPiece& piece, std::vector<std::int32_t>& ids) const;
  void append(const TurnFormat& format, std::string_view content, const TokenWeights* prompts, Tokens& tokens) const;
  void append_parts(std::span<const WeightedText> parts, Tokens& tokens) const;
  void append_answer(const View& view, std::size_t number, Tokens& tokens) const;
  const TurnFormat& format_of(Role role) const;
  std::string content_of(const Message& message) const;
  std::string format_call(const std::string& text) const;
  std::string without_thoughts(std::string_view text) const;
  bool lacks_thought(std::string_view text) const;
  void add_empty_thought(const Message& answer, std::vector<std::int32_t>& source, std::vector<std::int32_t>& target) const;
  bool learns_empty_thought(const Message& answer) const;

  TemplateSpec spec_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  const ToolFormat* tool_format_;
  std::optional<std::int32_t> eos_id_;
  std::vector<std::int32_t> empty_thought_;
};

}  // namespace qft::encode

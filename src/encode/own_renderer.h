// Renders conversations with the model's own chat template, or another Jinja template, as transformers does.
#pragma once

#include "qft/jinja/template.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "template_renderer.h"
#include "tool_format.h"

namespace qft::encode {

/// The model's answer in the short conversations that probe how a template renders.
inline constexpr std::string_view kProbeAnswer = "qft answers";

class OwnRenderer : public TemplateRenderer {
 public:
  /// Throws ConfigError if the template cannot be parsed.
  OwnRenderer(const ModelChatTemplate& own, const std::filesystem::path& tokenizer_dir,
              std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options);

  std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                               const TurnWeighing& weighing) const override;
  Exchange answer(const Conversation& conversation, const Message& response, bool learns_thought) const override;
  std::vector<std::int32_t> prompt(const Conversation& conversation) const override;
  std::string hash() const override;

  /// The text after an answer in a short conversation ("<|im_end|>
  /// "); nothing if the template refuses that conversation or does not show its answer.
  const std::optional<std::string>& ending() const { return ending_; }
  /// Returns the members of `variables` that the template never reads.
  std::vector<std::string> unread(const Json& variables) const;
  bool reads(std::string_view variable) const;
  /// Whether the template renders calls in answers as this tool format does.
  bool writes_calls_as(const ToolFormat& format) const;

 private:
  /// A template and how it expects the parts of a conversation, found by probing.
  struct Form {
    jinja::Template chat;
    std::string source;
    bool hides_system = false;  // shows no system message
    /// Returns arguments in the form that the template expects.
    Json arguments_of(const Json& arguments) const { return arguments_as_text ? Json(dump_python_json(arguments)) : arguments; }
    bool arguments_as_text = false;     // the template concatenates arguments with a text
    std::string_view thought_key = {};  // one of kThoughtKeys; empty: the template reads none
    bool thought_in_text = false;       // the template splits <think> off the text
  };
  /// The messages of a conversation, prepared for the template.
  struct Dialogue {
    std::vector<Message> messages;
    bool has_system = false;  // the first entry of `rendered` is a system message
    std::string system_text;
    bool drops_thoughts = false;
    Json rendered = Json::array();
    Json variables = Json::object();  // render() sets messages and add_generation_prompt
    const Form* form = nullptr;
  };
  /// A rendering that ends with an answer.
  struct Answer {
    std::size_t number = 0;                // index among the answers
    std::string text;                      // the rendering
    std::vector<jinja::ByteRange> ranges;  // ranges of `text` that the model generates; at least one, none empty
  };
  Dialogue dialogue_of(const Conversation& conversation, const std::vector<Message>& messages) const;
  void set_variables(const Conversation& conversation, Dialogue& dialogue) const;
  jinja::Rendering render(Dialogue& dialogue, std::size_t messages, bool generation_prompt) const;
  Answer find_answer(Dialogue& dialogue, std::size_t number) const;
  std::vector<std::vector<Answer>> group_answers(Dialogue& dialogue, const std::vector<bool>& learned) const;
  TrainingSample cut(std::span<const Answer> answers, const Dialogue& dialogue, const TurnWeighing& weighing) const;
  std::vector<WeightedText> parts_of(std::string_view text, std::span<const jinja::ByteRange> ranges, const Message& answer,
                                     std::string_view question, bool is_last, const TurnWeighing& weighing) const;
  static Json answer_of(const Message& message, const Dialogue& dialogue);
  void probe_form(Form& form) const;
  std::string probe(const Form& form, const Json& answer, bool thinks = false) const;
  std::string probe(const Form& form, Json messages, Json variables) const;
  void probe_calls(Form& form) const;
  void probe_thoughts(Form& form) const;

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  std::string description_;      // for hashes
  Json fixed_ = Json::object();  // special tokens and the run's variables
  jinja::RenderOptions render_;
  Form form_;
  std::optional<Form> tool_use_;  // for conversations with tools, if the model has one
  std::optional<std::string> ending_;
};

}  // namespace qft::encode

// The chat template that comes with a model, or another one in Jinja: conversations are rendered as transformers renders them.
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

/// What the model answers in short conversations that show how a template renders.
inline constexpr std::string_view kProbeAnswer = "qft answers";

class OwnRenderer : public TemplateRenderer {
 public:
  /// Throws ConfigError where the template cannot be parsed.
  OwnRenderer(const ModelChatTemplate& own, const std::filesystem::path& tokenizer_dir,
              std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options);

  std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                               const TurnWeighing& weighing) const override;
  Turn answer(const Conversation& conversation, const Message& response, bool learns_thought) const override;
  std::vector<std::int32_t> prompt(const Conversation& conversation) const override;
  std::string hash() const override;

  /// The text behind an answer, as a short conversation shows it ("<|im_end|>\n"); nothing if the template refuses that one, or
  /// does not show its answer.
  const std::optional<std::string>& ending() const { return ending_; }
  /// Members of `variables` that the template never reads.
  std::vector<std::string> unread(const Json& variables) const;
  bool reads(std::string_view variable) const;
  /// Whether calls in answers read as in this format of tools.
  bool writes_calls_as(const ToolFormat& format) const;

 private:
  /// A template, and how it wants the parts of a conversation, as short ones show.
  struct Form {
    jinja::Template chat;
    std::string source;
    bool hides_system = false;  // a system message
    /// As the template gets them.
    Json arguments_of(const Json& arguments) const { return arguments_as_text ? Json(dump_python_json(arguments)) : arguments; }
    bool arguments_as_text = false;     // it adds a call's arguments to a text
    std::string_view thought_key = {};  // one of kThoughtKeys; empty: it reads none
    bool thought_in_text = false;       // it takes <think> in the text apart
  };
  /// The messages of a conversation as the template gets them.
  struct Dialogue {
    std::vector<Message> messages;
    bool has_system = false;  // the first of `rendered` is a system message
    std::string system_text;
    bool drops_thoughts = false;
    Json rendered = Json::array();
    Json variables = Json::object();  // render() sets messages and add_generation_prompt
    const Form* form = nullptr;
  };
  /// An answer in a rendering that ends with it.
  struct Answer {
    std::size_t number = 0;              // among the answers
    std::string text;                    // the rendering
    std::vector<jinja::ByteRange> said;  // of `text`: what the model says, at least one range, none is empty
  };
  Dialogue dialogue_of(const Conversation& conversation, const std::vector<Message>& messages) const;
  void set_variables(const Conversation& conversation, Dialogue& dialogue) const;
  jinja::Rendering render(Dialogue& dialogue, std::size_t messages, bool asks) const;
  Answer find_answer(Dialogue& dialogue, std::size_t number) const;
  std::vector<std::vector<Answer>> group_answers(Dialogue& dialogue, const std::vector<bool>& learned) const;
  TrainingSample cut(std::span<const Answer> answers, const Dialogue& dialogue, const TurnWeighing& weighing) const;
  std::vector<WeightedText> parts_of(std::string_view text, std::span<const jinja::ByteRange> said, const Message& answer,
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
  Json fixed_ = Json::object();  // special tokens, and the run's variables
  jinja::RenderOptions render_;
  Form form_;
  std::optional<Form> tool_use_;  // of conversations with tools, where the model has one
  std::optional<std::string> ending_;
};

}  // namespace qft::encode

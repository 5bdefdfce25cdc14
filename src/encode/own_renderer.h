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

namespace qft::encode {

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

 private:
  /// The messages of a conversation as the template gets them.
  struct Dialogue {
    std::vector<Message> messages;
    std::string system_text;  // empty: no system message; else it is the first of `rendered`
    Json rendered = Json::array();
    Json variables = Json::object();  // render() sets messages and add_generation_prompt
    const jinja::Template* with = nullptr;
  };
  /// An answer in a rendering that ends with it.
  struct Answer {
    std::size_t number = 0;              // among the answers
    std::string text;                    // the rendering
    std::vector<jinja::ByteRange> said;  // of `text`: what the model says, at least one range, none is empty
  };
  Dialogue dialogue_of(const Conversation& conversation, const std::vector<Message>& messages) const;
  jinja::Rendering render(Dialogue& dialogue, std::size_t messages, bool asks) const;
  Answer find_answer(Dialogue& dialogue, std::size_t number) const;
  std::vector<std::vector<Answer>> group_answers(Dialogue& dialogue, const std::vector<bool>& learned) const;
  TrainingSample cut(std::span<const Answer> answers, const Dialogue& dialogue, const TurnWeighing& weighing) const;
  std::vector<WeightedText> parts_of(std::string_view text, std::span<const jinja::ByteRange> said, const Message& answer,
                                     std::string_view question, bool is_last, const TurnWeighing& weighing) const;
  Json answer_of(const Message& message) const;
  void find_ending();

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  std::string description_;  // for hashes
  std::string source_;       // of both templates: which names of keys they have
  jinja::Template template_;
  std::optional<jinja::Template> tool_use_;  // of conversations with tools, where the model has one
  bool arguments_as_text_ = false;           // the template adds a call's arguments to a text
  Json fixed_ = Json::object();              // special tokens, and the run's variables
  jinja::RenderOptions render_;
  std::optional<std::string> ending_;
};

}  // namespace qft::encode

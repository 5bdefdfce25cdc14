// Renders conversations with a YAML template: the texts around each turn.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "template_renderer.h"

namespace qft::encode {

struct ToolFormat;

class YamlRenderer : public TemplateRenderer {
 public:
  /// Throws ConfigError for an unknown tool format.
  YamlRenderer(const TemplateSpec& spec, std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const TemplateOptions& options,
               std::optional<std::int32_t> eos_id);

  std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                               const TurnWeighing& weighing) const override;
  Exchange answer(const Conversation& conversation, const Message& response, bool learns_thought) const override;
  std::vector<std::int32_t> prompt(const Conversation& conversation) const override;
  std::string hash() const override;

 private:
  struct Tokens;  // the tokens of a message, with weights
  struct Body;    // a message as the text between the template's marks
  struct View;    // a conversation to encode
  Body body_of(const Message& message, bool keeps_thought) const;
  std::vector<Body> bodies_of(const std::vector<Message>& messages, bool last_thought_only) const;
  std::string system_of(const View& view) const;
  std::vector<Tokens> encode(const View& view) const;
  void append_mark(const TurnPiece& piece, std::vector<std::int32_t>& ids) const;
  void append(const TurnFormat& format, std::string_view content, const TokenWeights* prompts, Tokens& tokens) const;
  void append_answer(const View& view, std::size_t number, Tokens& tokens) const;
  const TurnFormat& format_of(const Body& body) const;
  std::string with_calls(std::string text, bool has_text, const Message& message) const;
  bool lacks_thought(std::string_view text) const;
  bool learns_empty_thought(std::string_view text) const;

  TemplateSpec spec_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  TemplateOptions options_;
  const ToolFormat* tool_format_;
  std::optional<std::int32_t> eos_id_;
  std::vector<std::int32_t> empty_thought_;
};

}  // namespace qft::encode

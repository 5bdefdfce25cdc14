// What a chat template does, of whichever kind: conversations to tokens.
#pragma once

#include "qft/encode/chat_template.h"

#include <string>
#include <vector>

namespace qft::encode {

/// Immutable and thread-safe. ChatTemplate says what each call means.
class TemplateRenderer {
 public:
  virtual ~TemplateRenderer() = default;
  virtual std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                       const TurnWeighing& weighing) const = 0;
  virtual Turn answer(const Conversation& conversation, const Message& response, bool learns_thought) const = 0;
  virtual std::vector<std::int32_t> prompt(const Conversation& conversation) const = 0;
  virtual std::string hash() const = 0;
};

/// The prompt's messages and an answer.
std::vector<Message> with_answer(const Conversation& conversation, const Message& response);

/// Appends parts of a text, each tokenised on its own; neighbours that count alike are one text for the tokenizer.
void append_parts(const tokenizer::Tokenizer& tokenizer, std::span<const WeightedText> parts, std::vector<std::int32_t>& ids,
                  std::vector<WeightRun>& runs);

}  // namespace qft::encode

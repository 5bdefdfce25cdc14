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

/// Ids up to `end`, behind those of the last run, count `weight`.
void count_to(std::int32_t end, float weight, std::vector<WeightRun>& runs);

/// The text of an answer in parts: by its own weight, else by the schemes, else it counts 1.
std::vector<WeightedText> weighed(std::string_view text, const Message& answer, std::string_view question,
                                  const TurnWeighing& weighing);

/// Appends parts of a text, each tokenised on its own; neighbours that count alike are one text for the tokenizer.
void append_parts(const tokenizer::Tokenizer& tokenizer, std::span<const WeightedText> parts, std::vector<std::int32_t>& ids,
                  std::vector<WeightRun>& runs);

}  // namespace qft::encode

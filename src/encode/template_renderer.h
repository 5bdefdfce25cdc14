// The interface of all chat templates: conversations to tokens.
#pragma once

#include "qft/encode/chat_template.h"

#include <string>
#include <vector>

namespace qft::encode {

/// Immutable and thread-safe. ChatTemplate documents each call.
class TemplateRenderer {
 public:
  virtual ~TemplateRenderer() = default;
  virtual std::vector<TrainingSample> training_samples(const Conversation& conversation, const AnswerChoice& choice,
                                                       const TurnWeighing& weighing) const = 0;
  virtual Exchange answer(const Conversation& conversation, const Message& response, bool learns_thought) const = 0;
  virtual std::vector<std::int32_t> prompt(const Conversation& conversation) const = 0;
  virtual std::string hash() const = 0;
};

/// Returns the prompt's messages followed by an answer.
std::vector<Message> with_answer(const Conversation& conversation, const Message& response);

/// Gives the ids from the last run's end to `end` the weight `weight`.
void append_weight_run(std::int32_t end, float weight, std::vector<WeightRun>& runs);

/// Splits an answer's text into weighted parts: by the answer's own weight, else by the schemes, else with weight 1.
std::vector<WeightedText> split_by_weight(std::string_view text, const Message& answer, std::string_view question,
                                          const TurnWeighing& weighing);

/// Appends parts of a text, each tokenised separately; adjacent parts with equal weights are tokenised as one text.
void append_parts(const tokenizer::Tokenizer& tokenizer, std::span<const WeightedText> parts, std::vector<std::int32_t>& ids,
                  std::vector<WeightRun>& runs);

}  // namespace qft::encode

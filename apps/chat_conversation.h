// A conversation with a model, independent of the user interface.
#pragma once

#include "qft/config/run_config.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/instance.h"
#include "qft/infer/decoder.h"
#include "qft/infer/sampler.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::apps {

/// The user's side of a conversation.
struct Listener {
  std::function<void(std::string_view)> on_text;  ///< receives an answer piece by piece
  std::function<bool()> interrupted;              ///< true stops the answer; may be empty
  std::string_view restart_hint;                  ///< the input that starts a new conversation, for messages
};

class Conversation {
 public:
  /// The arguments must outlive the conversation.
  Conversation(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance, Listener listener);

  enum class Answer { whole, interrupted, none };
  /// Generates the answer to `text`. The conversation keeps an interrupted answer up to the interruption. If the interruption
  /// comes before the first word (none) or an error occurs, the conversation is unchanged.
  Answer answer(const std::string& text);
  /// Generates another answer to the last question. Requires a question.
  Answer regenerate();
  /// Removes the last question and its answer. Returns the question, or nullopt if there is none.
  std::optional<std::string> undo();
  void restart() { messages_.clear(); }
  /// Sets the system message and starts a new conversation.
  void set_system(std::string text);

  bool empty() const { return messages_.empty(); }
  /// The system message from the run or set_system(); empty: the template's own.
  const std::string& system() const { return system_; }

 private:
  Answer answer_to(std::vector<encode::Message> messages);
  Answer answer_last();
  std::vector<std::int32_t> fitting_prompt();

  const config::RunConfig& config_;
  const encode::ChatTemplate& chat_;
  const model::RopeConfig& rope_;
  Listener listener_;
  std::string system_;
  std::int64_t positions_, rows_, limit_;
  infer::Decoder decoder_;
  infer::Sampler sampler_;
  std::vector<std::int32_t> stop_ids_;
  std::vector<encode::Message> messages_;
  std::vector<std::int32_t> cached_;  ///< tokens in the cache
};

}  // namespace qft::apps

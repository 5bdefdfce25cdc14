// A conversation with a model, whatever it is shown on.
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

/// Who a conversation is held with.
struct Listener {
  std::function<void(std::string_view)> say;  ///< gets an answer as it comes
  std::function<bool()> interrupt;            ///< whether the answer is to stop; may be empty
  std::string_view anew;                      ///< what starts a new conversation, for messages
};

class Conversation {
 public:
  /// All must outlive it.
  Conversation(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance, Listener listener);

  enum class Answer { whole, interrupted, none };
  /// Says the answer to `text`. One that is interrupted stays as far as it was said; before its first word (none), and after an
  /// error, the conversation is as it was.
  Answer answer(const std::string& text);
  /// Says another answer to the last question, which must be there.
  Answer answer_again();
  /// Takes the last question and its answer back; returns the question, nothing where there is none.
  std::optional<std::string> take_back();
  void start_anew() { messages_.clear(); }
  /// Sets the system message and starts anew.
  void set_system(std::string text);

  bool empty() const { return messages_.empty(); }
  /// The run's or set_system()'s; empty: the template's own.
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
  std::vector<std::int32_t> fed_;  ///< what the cache holds
};

}  // namespace qft::apps

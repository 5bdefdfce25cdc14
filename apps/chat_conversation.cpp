#include "chat_conversation.h"

#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/engine/token_rows.h"
#include "qft/infer/generator.h"

#include <algorithm>
#include <utility>

namespace qft::apps {
namespace {

/// Minimum cache capacity in tokens. The cache holds four answers or this minimum, but at most the model's positions.
constexpr std::int64_t kMinCapacity = 4096;

/// Returns the number of leading tokens that `prompt` shares with the cache.
std::size_t common_prefix(const std::vector<std::int32_t>& cached, const std::vector<std::int32_t>& prompt) {
  const auto end = std::mismatch(cached.begin(), cached.end(), prompt.begin(), prompt.end());
  return static_cast<std::size_t>(end.first - cached.begin());
}

/// Returns the number of cached tokens that a prompt can reuse. If rope frequencies depend on the sequence length, it can reuse
/// none.
std::int64_t reusable_tokens(const std::vector<std::int32_t>& cached, const std::vector<std::int32_t>& prompt,
                             const model::RopeConfig& rope) {
  if (rope.scales_for(static_cast<std::int64_t>(std::max(cached.size(), prompt.size())))) return 0;
  return static_cast<std::int64_t>(std::min(common_prefix(cached, prompt), prompt.size() - 1));
}

}  // namespace

Conversation::Conversation(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance,
                           Listener listener)
    : config_(config),
      chat_(chat),
      rope_(instance.spec().config.rope),
      listener_(std::move(listener)),
      system_(config.generate.system),
      positions_(instance.spec().config.max_position_embeddings),
      rows_(instance.spec().config.vocab_size),
      limit_(infer::answer_limit(config.generate, positions_, 0).tokens),
      decoder_(instance, std::min(std::max(kMinCapacity, 4 * limit_), positions_)),
      sampler_(infer::sampler_options(config)),
      stop_ids_(infer::stop_tokens(chat.stop_token_ids(), chat.tokenizer(), instance.spec().config)) {}

Conversation::Answer Conversation::answer(const std::string& text) {
  auto messages = messages_;
  messages.push_back({encode::Role::user, text});
  return answer_to(std::move(messages));
}

Conversation::Answer Conversation::regenerate() {
  QFT_ASSERT(!messages_.empty(), "there is no question");
  auto messages = messages_;
  messages.pop_back();
  return answer_to(std::move(messages));
}

std::optional<std::string> Conversation::undo() {
  if (messages_.empty()) return std::nullopt;
  const std::string question = messages_[messages_.size() - 2].text;
  messages_.resize(messages_.size() - 2);
  return question;
}

void Conversation::set_system(std::string text) {
  system_ = std::move(text);
  restart();
}

Conversation::Answer Conversation::answer_to(std::vector<encode::Message> messages) {
  std::swap(messages_, messages);
  try {
    const Answer answer = answer_last();
    if (answer == Answer::none) messages_ = std::move(messages);
    return answer;
  } catch (...) {
    messages_ = std::move(messages);
    decoder_.sequence().truncate(0);
    cached_.clear();
    throw;
  }
}

/// Removes the oldest exchanges while the conversation is too long for the cache.
std::vector<std::int32_t> Conversation::fitting_prompt() {
  const std::int64_t capacity = decoder_.sequence().capacity();
  auto prompt = chat_.render_prompt(messages_, system_);
  engine::require_token_rows(chat_.tokenizer(), prompt, config_.model.model_name_or_path, rows_);
  const auto room = std::min(limit_, capacity / 2);
  while (static_cast<std::int64_t>(prompt.size()) + room > capacity && messages_.size() > 2) {
    messages_.erase(messages_.begin(), messages_.begin() + 2);
    prompt = chat_.render_prompt(messages_, system_);
    log::warn("the conversation is too long: its oldest question and answer were removed");
  }
  if (static_cast<std::int64_t>(prompt.size()) >= capacity && capacity < positions_)
    fail(
        "the message and its template have {} tokens, but a conversation holds {} (four times max_new_tokens, which is {}): "
        "raise max_new_tokens",
        prompt.size(), capacity, limit_);
  return prompt;
}

Conversation::Answer Conversation::answer_last() {
  auto prompt = fitting_prompt();
  const std::int64_t capacity = decoder_.sequence().capacity();
  const auto limit = infer::answer_limit(config_.generate, capacity, static_cast<std::int64_t>(prompt.size()));
  decoder_.sequence().truncate(reusable_tokens(cached_, prompt, rope_));
  const auto g = infer::generate(decoder_, sampler_, chat_.tokenizer(), prompt, stop_ids_, limit.tokens,
                                 config_.generate.skip_special_tokens, listener_.on_text, listener_.interrupted);
  listener_.on_text(g.interrupted ? " [interrupted]\n" : "\n");
  if (limit.shortened && !g.stopped && !g.interrupted)
    log::warn("the answer was cut off: the conversation has reached its limit of {} tokens; {} starts a new one", capacity,
              listener_.restart_hint);
  cached_ = std::move(prompt);
  cached_.insert(cached_.end(), g.ids.begin(), g.ids.end());
  cached_.resize(static_cast<std::size_t>(decoder_.sequence().length()));
  if (g.interrupted && g.text.empty()) return Answer::none;
  messages_.push_back({encode::Role::assistant, g.text});
  return g.interrupted ? Answer::interrupted : Answer::whole;
}

}  // namespace qft::apps

#include "qft/core/log.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/token_rows.h"
#include "qft/infer/generator.h"
#include "qft/infer/load_model.h"
#include "qft/infer/stop_tokens.h"

#include <algorithm>
#include <iostream>

#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft chat";
  s.summary = "a conversation on the terminal (an empty line starts anew, end of input quits)";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::generate;
  return s;
}

/// Tokens of a conversation that fit the cache: four answers' worth, at least this many, as far as the model's positions go.
constexpr std::int64_t kLeastCapacity = 4096;

/// How many leading tokens of `prompt` are those that the cache was fed.
std::size_t common_prefix(const std::vector<std::int32_t>& fed, const std::vector<std::int32_t>& prompt) {
  const auto end = std::mismatch(fed.begin(), fed.end(), prompt.begin(), prompt.end());
  return static_cast<std::size_t>(end.first - fed.begin());
}

/// How many tokens of the cache serve a prompt. Where frequencies follow a sequence's length, keys of a long one serve no other.
std::int64_t kept_of(const std::vector<std::int32_t>& fed, const std::vector<std::int32_t>& prompt,
                     const model::RopeConfig& rope) {
  if (rope.follows(static_cast<std::int64_t>(std::max(fed.size(), prompt.size())))) return 0;
  return static_cast<std::int64_t>(std::min(common_prefix(fed, prompt), prompt.size() - 1));
}

/// A conversation, and what of it the cache holds.
class Conversation {
 public:
  Conversation(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance)
      : config_(config),
        chat_(chat),
        rope_(instance.spec().config.rope),
        positions_(instance.spec().config.max_position_embeddings),
        rows_(instance.spec().config.vocab_size),
        limit_(infer::answer_limit(config.generate, positions_, 0).tokens),
        decoder_(instance, std::min(std::max(kLeastCapacity, 4 * limit_), positions_)),
        sampler_(infer::sampler_options(config)),
        stop_ids_(infer::stop_tokens(chat.stop_token_ids(), chat.tokenizer(), instance.spec().config)) {}

  void start_anew() { messages_.clear(); }

  /// Prints the answer to `text` as it comes. An error leaves the conversation as it was before.
  void answer(const std::string& text) {
    const auto before = messages_;
    try {
      messages_.push_back({encode::Role::user, text});
      answer_last();
    } catch (...) {
      messages_ = before;
      decoder_.sequence().truncate(0);
      fed_.clear();
      throw;
    }
  }

 private:
  void answer_last() {
    const std::int64_t capacity = decoder_.sequence().capacity();
    auto prompt = chat_.render_prompt(messages_, config_.generate.system);
    engine::require_token_rows(chat_.tokenizer(), prompt, config_.model.model_name_or_path, rows_);
    // The oldest exchange goes first where the conversation outgrows the cache.
    const auto room = std::min(limit_, capacity / 2);
    while (static_cast<std::int64_t>(prompt.size()) + room > capacity && messages_.size() > 2) {
      messages_.erase(messages_.begin(), messages_.begin() + 2);
      prompt = chat_.render_prompt(messages_, config_.generate.system);
      log::warn("the conversation has grown too long: its oldest question and answer are forgotten");
    }
    if (static_cast<std::int64_t>(prompt.size()) >= capacity && capacity < positions_)
      fail(
          "with its template the message has {} tokens, but a conversation holds {} (four times max_new_tokens, which is {}): "
          "raise "
          "max_new_tokens",
          prompt.size(), capacity, limit_);
    const auto limit = infer::answer_limit(config_.generate, capacity, static_cast<std::int64_t>(prompt.size()));
    decoder_.sequence().truncate(kept_of(fed_, prompt, rope_));
    const auto g =
        infer::generate(decoder_, sampler_, chat_.tokenizer(), prompt, stop_ids_, limit.tokens,
                        config_.generate.skip_special_tokens, [](std::string_view piece) { std::cout << piece << std::flush; });
    std::cout << "\n";
    if (limit.shortened && !g.stopped)
      log::warn("the answer was cut off: the conversation has reached its limit of {} tokens; an empty line starts a new one",
                capacity);
    messages_.push_back({encode::Role::assistant, g.text});
    fed_ = std::move(prompt);
    fed_.insert(fed_.end(), g.ids.begin(), g.ids.end());
    fed_.resize(static_cast<std::size_t>(decoder_.sequence().length()));
  }

  const config::RunConfig& config_;
  const encode::ChatTemplate& chat_;
  const model::RopeConfig& rope_;
  std::int64_t positions_, rows_, limit_;
  infer::Decoder decoder_;
  infer::Sampler sampler_;
  std::vector<std::int32_t> stop_ids_;
  std::vector<encode::Message> messages_;
  std::vector<std::int32_t> fed_;
};

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (session.size() > 1) fail_config("qft chat runs as one process, not {}: leave mpirun out", session.size());
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = encode::ChatTemplate::from_config(config, tokenizer);
  auto instance = infer::load_for_inference(config, session.world(), device);
  engine::warn_of_token_rows(chat.tokenizer(), config.model.model_name_or_path, instance->spec().config.vocab_size);
  Conversation conversation(config, chat, *instance);
  std::cout << "> " << std::flush;
  for (std::string text; std::getline(std::cin, text); std::cout << "> " << std::flush) {
    if (text.empty()) {
      conversation.start_anew();
      continue;
    }
    try {
      conversation.answer(text);
    } catch (const Error& error) {
      std::cerr << "error: " << error.what() << std::endl;  // of this line; the conversation goes on
    }
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace

extern const Subcommand kChat{"chat", spec, run};

}  // namespace qft::apps

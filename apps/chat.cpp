#include <algorithm>
#include <iostream>

#include "qft/data/chat_template.h"
#include "qft/infer/generator.h"
#include "qft/train/evaluate.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft chat";
  s.summary = "a conversation on the terminal (an empty line starts anew, end of input quits)";
  s.run_file = config::CommandSpec::RunFile::required;
  return s;
}

/// Tokens of a conversation that fit the cache: four answers' worth, at least this many.
constexpr std::int64_t kLeastCapacity = 4096;

/// How many leading tokens of `prompt` are those that the cache was fed.
std::size_t common_prefix(const std::vector<std::int32_t>& fed, const std::vector<std::int32_t>& prompt) {
  const auto end = std::mismatch(fed.begin(), fed.end(), prompt.begin(), prompt.end());
  return static_cast<std::size_t>(end.first - fed.begin());
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (session.size() > 1) fail_config("qft chat runs as one process, not {}: leave mpirun out", session.size());
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = data::ChatTemplate::from_config(config, tokenizer);
  auto instance = train::load_for_inference(config, session.world(), device);
  const auto limit = infer::answer_limit(config.generate, 0);
  const std::int64_t capacity = std::max(kLeastCapacity, 4 * limit);
  infer::Decoder decoder(*instance, capacity);
  infer::Sampler sampler(infer::sampler_options(config));
  std::vector<data::Message> messages;
  std::vector<std::int32_t> fed;
  std::cout << "> " << std::flush;
  for (std::string text; std::getline(std::cin, text); std::cout << "> " << std::flush) {
    if (text.empty()) {
      messages.clear();
      continue;
    }
    messages.push_back({data::Role::user, text});
    auto prompt = chat.render_prompt(messages, config.generate.system);
    // The oldest exchange goes first where the conversation outgrows the cache.
    while (static_cast<std::int64_t>(prompt.size()) + limit > capacity && messages.size() > 2) {
      messages.erase(messages.begin(), messages.begin() + 2);
      prompt = chat.render_prompt(messages, config.generate.system);
    }
    const auto kept = std::min(common_prefix(fed, prompt), prompt.size() - 1);
    decoder.cache().truncate(static_cast<std::int64_t>(kept));
    const auto g = infer::generate(decoder, sampler, *tokenizer, prompt, chat.stop_token_ids(), limit,
                                   config.generate.skip_special_tokens,
                                   [](std::string_view piece) { std::cout << piece << std::flush; });
    std::cout << "\n";
    messages.push_back({data::Role::assistant, g.text});
    fed = std::move(prompt);
    fed.insert(fed.end(), g.ids.begin(), g.ids.end());
    fed.resize(static_cast<std::size_t>(decoder.cache().length()));
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace

extern const Subcommand kChat{"chat", spec, run};

}  // namespace qft::apps

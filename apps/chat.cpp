#include "qft/console/terminal.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/token_rows.h"
#include "qft/infer/load_model.h"

#include <iostream>
#include <string>

#include "chat_conversation.h"
#include "chat_terminal.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft chat";
  s.summary =
      "holds a conversation on the terminal (/help lists commands); answers piped lines, and an empty line starts a new "
      "conversation";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::generate;
  return s;
}

/// Answers each line of standard input on standard output.
void chat_with_pipe(const config::RunConfig& config, const encode::ChatTemplate& chat, engine::Instance& instance) {
  Conversation conversation(config, chat, instance,
                            {[](std::string_view piece) { std::cout << piece << std::flush; }, {}, "an empty line"});
  std::cout << "> " << std::flush;
  for (std::string text; std::getline(std::cin, text); std::cout << "> " << std::flush) {
    if (text.empty()) {
      conversation.restart();
      continue;
    }
    try {
      conversation.answer(text);
    } catch (const Error& error) {
      std::cerr << "error: " << error.what() << std::endl;  // for this line; the conversation continues
    }
  }
  std::cout << std::endl;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (session.size() > 1) fail_config("qft chat runs as one process, not {}: leave mpirun out", session.size());
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = encode::ChatTemplate::from_config(config, tokenizer);
  auto instance = infer::load_for_inference(config, session.world(), device);
  engine::warn_of_token_rows(chat.tokenizer(), config.model.model_name_or_path, instance->spec().config.vocab_size);
  if (console::Terminal::present()) return chat_on_terminal(config, chat, *instance);
  chat_with_pipe(config, chat, *instance);
  return kExitOk;
}

}  // namespace

extern const Subcommand kChat{"chat", spec, run};

}  // namespace qft::apps

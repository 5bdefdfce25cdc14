#include <iostream>

#include <nlohmann/json.hpp>

#include "qft/data/chat_template.h"
#include "qft/infer/generator.h"
#include "qft/train/evaluate.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft generate";
  s.summary = "answers prompt=\"...\", streamed to stdout";
  s.run_file = config::CommandSpec::RunFile::required;
  s.machine_readable = true;
  return s;
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (session.size() > 1) fail_config("qft generate runs as one process, not {}: leave mpirun out", session.size());
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = data::ChatTemplate::from_config(config, tokenizer);
  auto instance = train::load_for_inference(config, session.world(), device);
  const std::vector<data::Message> messages = {{data::Role::user, config.generate.prompt}};
  const auto prompt = chat.render_prompt(messages, config.generate.system);
  const auto limit = infer::answer_limit(config.generate, static_cast<std::int64_t>(prompt.size()));
  infer::Decoder decoder(*instance, static_cast<std::int64_t>(prompt.size()) + limit);
  infer::Sampler sampler(infer::sampler_options(config));
  const auto g = infer::generate(decoder, sampler, *tokenizer, prompt, chat.stop_token_ids(), limit,
                                 config.generate.skip_special_tokens, [&](std::string_view piece) {
                                   if (!line.json) std::cout << piece << std::flush;
                                 });
  if (line.json) {
    const nlohmann::ordered_json json = {{"text", g.text},
                                         {"ids", g.ids},
                                         {"stopped", g.stopped},
                                         {"prompt_tokens", g.prompt_tokens},
                                         {"prompt_seconds", g.prompt_seconds},
                                         {"decode_seconds", g.decode_seconds}};
    std::cout << json.dump();
  }
  std::cout << std::endl;
  return kExitOk;
}

}  // namespace

extern const Subcommand kGenerate{"generate", spec, run};

}  // namespace qft::apps

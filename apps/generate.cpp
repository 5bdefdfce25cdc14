#include "qft/eval/generate.h"

#include "qft/core/log.h"
#include "qft/encode/chat_template.h"
#include "qft/engine/token_rows.h"
#include "qft/infer/generator.h"
#include "qft/infer/load_model.h"

#include <iostream>
#include <iterator>
#include <unistd.h>

#include "subcommand.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft generate";
  s.summary =
      "answers prompt=\"...\" or a piped prompt and streams the answer to stdout; with --input answers a file's prompts, on any "
      "number of ranks";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::generate;
  s.machine_readable = true;
  s.options.add_options()(
      "input", po::value<std::string>(),
      "prompts in any format of training data: a file, a folder, a name in dataset_info.json, or - for stdin")(
      "output", po::value<std::string>(), "file for the answers to --input, one JSON line each, or - for stdout");
  return s;
}

/// Returns the prompt from the run file or the command line, else from the pipe.
std::string prompt_of(const config::RunConfig& config) {
  std::string prompt = config.generate.prompt;
  if (prompt.empty() && isatty(STDIN_FILENO) == 0) {
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (prompt.ends_with('\n')) prompt.pop_back();
  }
  if (prompt.empty())
    fail_config(
        "there is no prompt: add prompt=\"...\" to the command line or the run file, or pipe it in (echo \"...\" | qft generate "
        "RUN.yaml); for a file of prompts use --input FILE --output FILE, for a conversation use qft chat");
  return prompt;
}

int answer_file(comm::Session& session, const config::CommandLine& line) {
  if (line.options.count("input") == 0 || line.options.count("output") == 0)
    fail_config("--input FILE and --output FILE must be given together, but {} is missing",
                line.options.count("input") == 0 ? "--input" : "--output");
  const auto input = line.options["input"].as<std::string>(), output = line.options["output"].as<std::string>();
  if (line.json && output == eval::kStandardStream)
    fail_config("--json and --output - both write to standard output: remove one of them");
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (!config.generate.prompt.empty()) fail_config("prompt and --input are both given: remove one of them");
  const auto result = eval::generate(config, input, output, session.world(), device);
  if (session.rank() == 0 && line.json)
    fmt::print("{}\n", result.values().dump());
  else if (session.rank() == 0)
    fmt::print(output == eval::kStandardStream ? stderr : stdout, "{}\n", result.describe());
  return result.errors > 0 ? kExitFailed : kExitOk;
}

int run(comm::Session& session, const config::CommandLine& line) {
  if (line.options.count("input") + line.options.count("output") > 0) return answer_file(session, line);
  const auto [config, device] = prepare(session, line, config::Purpose::generate);
  if (session.size() > 1)
    fail_config("qft generate answers one prompt as one process, not {}: leave mpirun out, or give --input FILE", session.size());
  const std::vector<encode::Message> messages = {{encode::Role::user, prompt_of(config)}};
  const auto tokenizer = tokenizer::Tokenizer::load(config.tokenizer_path());
  const auto chat = encode::ChatTemplate::from_config(config, tokenizer);
  const auto prompt = chat.render_prompt(messages, config.generate.system);
  const auto source = engine::ModelSource::read(config, engine::Use::inference);
  const model::ModelConfig& model = source.config();
  engine::require_token_rows(chat.tokenizer(), prompt, config.model.model_name_or_path, model.vocab_size);
  engine::warn_of_token_rows(chat.tokenizer(), config.model.model_name_or_path, model.vocab_size);
  const std::int64_t positions = model.max_position_embeddings;
  const auto limit = infer::answer_limit(config.generate, positions, static_cast<std::int64_t>(prompt.size()));
  auto instance = infer::load_for_inference(config, source, session.world(), device);
  infer::Decoder decoder(*instance, static_cast<std::int64_t>(prompt.size()) + limit.tokens);
  infer::Sampler sampler(infer::sampler_options(config));
  const auto stop_ids = infer::stop_tokens(chat.stop_token_ids(), *tokenizer, instance->spec().config);
  const auto g = infer::generate(decoder, sampler, *tokenizer, prompt, stop_ids, limit.tokens,
                                 config.generate.skip_special_tokens, [&](std::string_view piece) {
                                   if (!line.json) std::cout << piece << std::flush;
                                 });
  if (line.json) {
    const nlohmann::ordered_json json = {{"text", g.text},
                                         {"ids", g.ids},
                                         {"stopped", g.stopped},
                                         {"prompt_ids", prompt},
                                         {"prompt_tokens", g.prompt_tokens},
                                         {"prompt_seconds", g.prompt_seconds},
                                         {"decode_seconds", g.decode_seconds}};
    std::cout << json.dump();
  }
  std::cout << std::endl;
  if (limit.shortened && !g.stopped)
    log::warn("the answer was cut off at the model's {} positions (max_position_embeddings, with its rope scaling)", positions);
  return kExitOk;
}

}  // namespace

extern const Subcommand kGenerate{"generate", spec, run};

}  // namespace qft::apps

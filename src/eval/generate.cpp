#include "qft/eval/generate.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/device/scalar_type.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/model_source.h"
#include "qft/engine/precision.h"
#include "qft/infer/answer_all.h"
#include "qft/infer/load_model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "answer_sink.h"
#include "prompts.h"
#include "rounded.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

/// Returns everything that answers depend on.
json settings_of(const config::RunConfig& config, const engine::ModelSource& source, const Prompts& prompts) {
  const config::GenerateArgs& g = config.generate;
  const engine::ModelIdentity model = engine::model_identity_of(config, source);
  const auto compute = engine::inference_precision(config, source.files()).precision.compute;
  return {{"prompts", prompts.hash},
          {"model", model.model},
          {"adapter", model.adapter},
          {"quantization", model.quantization},
          {"compute_dtype", torch_name(device::dtype_of(compute))},
          {"do_sample", g.do_sample},
          {"temperature", g.temperature},
          {"top_p", g.top_p},
          {"top_k", g.top_k},
          {"repetition_penalty", g.repetition_penalty},
          {"seed", config.training.seed},
          {"max_new_tokens", g.max_new_tokens},
          {"max_length", g.max_length},
          {"skip_special_tokens", g.skip_special_tokens}};
}

/// Returns the first members of a record's line.
ordered_json beginning(std::int64_t number, const Prompt& prompt) {
  ordered_json line = {{"index", number}};
  if (!prompt.id.empty()) line["id"] = ordered_json::parse(prompt.id);
  return line;
}

std::string error_line(std::int64_t number, const Prompt& prompt) {
  ordered_json line = beginning(number, prompt);
  line["error"] = prompt.error;
  return line.dump();
}

std::int64_t new_tokens_of(const infer::Answer& answer) {
  return static_cast<std::int64_t>(answer.ids.size()) + (answer.stop >= 0 ? 1 : 0);
}

ordered_json answer_line(std::int64_t number, const Prompt& prompt, const infer::Answer& answer,
                         const tokenizer::Tokenizer& tokenizer, bool skip_special) {
  ordered_json line = beginning(number, prompt);
  line["prompt"] = replace_invalid_utf8(tokenizer.decode(prompt.tokens));
  line["predict"] = replace_invalid_utf8(tokenizer.decode(answer.ids, skip_special));
  if (!prompt.label.empty()) line["label"] = prompt.label;
  line["finish"] = answer.stop >= 0 ? "stop" : "length";
  line["prompt_tokens"] = prompt.tokens.size();
  line["new_tokens"] = new_tokens_of(answer);
  return line;
}

/// Returns the records that this data rank answers, the longest first, and drops the tokens of all others.
std::vector<std::size_t> take_mine(std::vector<Prompt>& prompts, const std::vector<std::int64_t>& done, const comm::Place& data) {
  std::vector<std::size_t> open, mine;
  std::vector<std::int64_t> costs;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Prompt& p = prompts[i];
    if (!p.is_asked() || std::ranges::binary_search(done, static_cast<std::int64_t>(i))) continue;
    open.push_back(i);
    costs.push_back(infer::cost_of(std::ssize(p.tokens), p.max_new_tokens));
  }
  std::vector<bool> keep(prompts.size(), false);
  for (const std::size_t i : infer::assigned_to(data.rank, costs, data.size)) {
    mine.push_back(open[i]);
    keep[open[i]] = true;
  }
  for (std::size_t i = 0; i < prompts.size(); ++i)
    if (!keep[i]) std::vector<std::int32_t>().swap(prompts[i].tokens);
  return mine;
}

/// Answers this rank's records and adds them to `sink`. Collective.
void answer(const Prompts& prompts, const std::vector<std::size_t>& mine, const config::RunConfig& config,
            const engine::ModelSource& source, comm::Communicator& comm, c10::Device device, AnswerSink& sink,
            GenerateResult& result) {
  const auto instance = infer::load_for_inference(config, source, comm, device);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto shortened = std::ranges::count_if(mine, [&](std::size_t i) { return prompts.all[i].shortened; });
  infer::warn_about_shortened_answers(shortened, *instance);
  std::vector<infer::Request> requests;
  for (const std::size_t i : mine) requests.push_back({prompts.all[i].tokens, prompts.all[i].max_new_tokens, i});
  Progress bar("generate", std::ssize(mine), comm.rank() == 0);
  const std::string each =
      instance->groups().data().size() > 1 ? fmt::format(" a {}", config.parallel.data_rank_noun()) : std::string();
  std::int64_t answers = 0, tokens = 0;
  infer::answer_all(*instance, requests, config, prompts.stop_ids, comm, [&](std::size_t r, const infer::Answer& a) {
    const auto number = static_cast<std::int64_t>(mine[r]);
    if (instance->groups().is_lead())
      sink.add(number,
               answer_line(number, prompts.all[mine[r]], a, prompts.chat.tokenizer(), config.generate.skip_special_tokens));
    tokens += new_tokens_of(a);
    bar.update(++answers, fmt::format("{:.0f} tok/s{}", static_cast<double>(tokens) / seconds(), each));
  });
  result.new_tokens = comm::all_reduce_value(instance->groups().data(), tokens);
  result.seconds = seconds();
}

/// Throws on all ranks if the ranks read different prompts. Collective.
void require_same_prompts(const std::string& hash, const std::string& input, comm::Communicator& comm) {
  const std::string first = comm::broadcast_string(comm, hash);
  comm::agreed(comm, [&] {
    require(hash == first, "the records of --input '{}' differ from rank 0's: name a file that all nodes share", input);
  });
}

}  // namespace

ordered_json GenerateResult::values() const {
  return {{"file", output},
          {"records", records},
          {"errors", errors},
          {"earlier", earlier},
          {"cut_off", cut_off},
          {"new_tokens", new_tokens},
          {"seconds", rounded(seconds, 1e3)},
          {"tokens_per_second", seconds > 0 ? rounded(static_cast<double>(new_tokens) / seconds, 1e3) : 0.0}};
}

std::string GenerateResult::describe() const {
  const std::int64_t answers = records - errors;
  std::string text = count_noun(answers, "answer");
  if (earlier > 0) text += fmt::format(" ({} from an earlier start)", earlier);
  if (seconds > 0)
    text += fmt::format(", {} tokens in {}, {:.0f} tok/s", new_tokens, format_duration(seconds),
                        static_cast<double>(new_tokens) / seconds);
  if (cut_off > 0) text += fmt::format("; {} cut off by max_new_tokens, max_length or the model's positions", cut_off);
  if (errors > 0) text += fmt::format("; {} could not be answered: their lines say why", count_noun(errors, "record"));
  return output == kStandardStream ? text : text + fmt::format("; '{}'", output);
}

GenerateResult generate(const config::RunConfig& config, const std::string& input, const std::string& output,
                        comm::Communicator& comm, c10::Device device) {
  const bool streams = input == kStandardStream || output == kStandardStream;
  if (streams && comm.size() > 1)
    fail_config("--input - and --output - work with one rank, not {}: name files, or start without mpirun", comm.size());
  const auto source = engine::ModelSource::read(config, engine::Use::inference, comm);
  std::optional<Prompts> prompts;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0 && output != kStandardStream) require_output(output, config.training.overwrite_output_dir);
    prompts.emplace(read_prompts(input, config, source.config()));
  });
  require_same_prompts(prompts->hash, input, comm);
  GenerateResult result{.output = output, .records = std::ssize(prompts->all) - prompts->blanks(), .errors = prompts->errors()};
  if (result.errors > 0 && comm.rank() == 0)
    log::warn("{} of {} cannot be answered, and their lines say why; the first: {}", result.errors,
              count_noun(result.records, "record"), prompts->first_error());
  if (prompts->blanks() > 0 && comm.rank() == 0)
    log::info("--input {} has {}: index counts them, but the output has no line for them", input,
              count_noun(prompts->blanks(), "blank line"));
  json settings;
  comm::agreed(comm, [&] { settings = settings_of(config, source, *prompts); });
  const auto sink = open_sink(
      output, settings, config.training.overwrite_output_dir, std::ssize(prompts->all),
      [&](std::int64_t i) -> std::optional<std::string> {
        const Prompt& p = prompts->all[static_cast<std::size_t>(i)];
        if (p.is_asked()) return std::nullopt;
        return p.blank ? std::string() : error_line(i, p);
      },
      comm);
  result.earlier = std::ssize(sink->done());
  if (result.earlier > 0 && comm.rank() == 0)
    log::info("resuming '{}': {} of {} are answered already", output, result.earlier, count_noun(result.records, "record"));
  const std::vector<std::size_t> mine = take_mine(prompts->all, sink->done(), engine::data_place(config, comm));
  const activity::Phase phase("generate");
  if (comm::all_reduce_value(comm, std::ssize(mine)) > 0) answer(*prompts, mine, config, source, comm, device, *sink, result);
  result.cut_off = sink->finish();
  return result;
}

}  // namespace qft::eval

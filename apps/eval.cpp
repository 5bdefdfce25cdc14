#include <nlohmann/json.hpp>

#include "qft/comm/exchange.h"
#include "qft/core/progress.h"
#include "qft/eval/perplexity.h"
#include "qft/io/file.h"
#include "qft/train/data_setup.h"
#include "qft/train/predict.h"
#include "subcommand.h"

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft eval";
  s.summary = "loss and perplexity of a model, with its adapter if one is given; with predict_with_generate its answers too";
  s.run_file = config::CommandSpec::RunFile::required;
  s.machine_readable = true;
  return s;
}

eval::PerplexityResult evaluate(parallel::Instance& instance, const train::EvalSet& set, const config::RunConfig& config,
                                comm::Communicator& comm) {
  const auto loader = set.loader(config, comm);
  Progress bar("eval", loader->slots(), comm.rank() == 0);
  return eval::evaluate(instance, *loader, comm, config.eval.predict_logprobs, [&](std::int64_t done) { bar.update(done); });
}

nlohmann::ordered_json to_json(const eval::PerplexityResult& r) {
  return {{"eval_loss", r.loss}, {"perplexity", r.perplexity}, {"label_tokens", r.label_tokens},
          {"tokens", r.tokens},  {"items", r.items},           {"eval_runtime", r.seconds}};
}

void print(const eval::PerplexityResult& r) {
  fmt::print("eval_loss   {:.6f}\nperplexity  {:.4f}\nitems {}, tokens {}, label tokens {}, {:.1f} s, {:.0f} tok/s\n", r.loss,
             r.perplexity, r.items, r.tokens, r.label_tokens, r.seconds, static_cast<double>(r.tokens) / r.seconds);
}

void print(const eval::PredictResult& r, const std::filesystem::path& dir) {
  fmt::print("BLEU-4      {:.4f}\nROUGE-1     {:.4f}\nROUGE-2     {:.4f}\nROUGE-L     {:.4f}\n"
             "answers {}, new tokens {}, {:.1f} s, {:.1f} tok/s; '{}'\n",
             r.mean.bleu_4, r.mean.rouge_1, r.mean.rouge_2, r.mean.rouge_l, r.items, r.new_tokens, r.seconds,
             static_cast<double>(r.new_tokens) / r.seconds, (dir / eval::kPredictionsFile).string());
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::eval);
  auto& comm = session.world();
  const bool predicts = config.eval.predict_with_generate;
  if (predicts) {
    comm::agreed(comm, [&, &dir = config.training.output_dir] {
      if (session.rank() == 0) io::probe_writable(dir);
    });
  }
  auto instance = parallel::Instance::load(config, comm, device, parallel::Use::inference);
  const auto set = train::open_eval_data(config, instance->spec().config, comm);
  const auto likelihood = evaluate(*instance, set, config, comm);
  std::optional<eval::PredictResult> answers;
  if (predicts) answers = train::predict(*instance, set, config, comm);
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    nlohmann::ordered_json json = to_json(likelihood);
    if (answers)
      for (const auto& [key, value] : answers->values()) json[key] = value;
    fmt::print("{}\n", json.dump());
    return kExitOk;
  }
  print(likelihood);
  if (answers) print(*answers, config.training.output_dir);
  return kExitOk;
}

}  // namespace

extern const Subcommand kEval{"eval", spec, run};

}  // namespace qft::apps

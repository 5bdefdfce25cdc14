#include "qft/core/units.h"
#include "qft/eval/compare.h"
#include "qft/eval/evaluate.h"

#include "subcommand.h"
#include <boost/program_options/value_semantic.hpp>
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft eval";
  s.summary =
      "computes loss and perplexity of a model, with its adapter if one is given; with predict_with_generate also generates "
      "answers";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::eval;
  s.machine_readable = true;
  s.options.add_options()(
      "compare", po::bool_switch(),
      "compare answers and scores of the base model and the tuned model: adapter_name_or_path, or the training result in "
      "output_dir");
  return s;
}

void print(const eval::PerplexityResult& r) {
  fmt::print("eval_loss   {:.6f}\n", r.loss);
  if (r.perplexity) fmt::print("perplexity  {:.4f}\n", *r.perplexity);
  for (const auto& [name, value] : r.metrics) fmt::print("{}  {:.4f}\n", name, value);
  for (const auto& [name, part] : r.by_dataset) fmt::print("{}  {}  ({} items)\n", name, part.scores(), part.items);
  const std::string labels = r.label_tokens > 0 ? fmt::format("label tokens {}, ", r.label_tokens) : "";
  fmt::print("items {}, tokens {}, {}{:.1f} s, {:.0f} tok/s\n", r.items, r.tokens, labels, r.seconds,
             static_cast<double>(r.tokens) / r.seconds);
}

void print(const eval::PredictResult& r, const std::filesystem::path& dir) {
  fmt::print(
      "BLEU-4      {:.4f}\nROUGE-1     {:.4f}\nROUGE-2     {:.4f}\nROUGE-L     {:.4f}, words by {}\n"
      "answers {}, new tokens {}, {:.1f} s, {:.2f} s a sample, {:.1f} tok/s, at most {} of a rank's memory; '{}'\n",
      r.mean.bleu_4, r.mean.rouge_1, r.mean.rouge_2, r.mean.rouge_l, r.words, r.items, r.new_tokens, r.seconds,
      r.seconds / static_cast<double>(r.items), static_cast<double>(r.new_tokens) / r.seconds,
      format_bytes(static_cast<double>(r.memory_peak)), (dir / eval::kPredictionsFile).string());
}

void print(const nlohmann::ordered_json& comparison, const std::filesystem::path& dir) {
  const auto& base = comparison["base"];
  const auto& tuned = comparison["tuned"];
  fmt::print("{:32} {:>12} {:>12} {:>12}\n", "", "base", "tuned", "difference");
  for (const auto& [key, difference] : comparison["difference"].items())
    fmt::print("{:32} {:12.4f} {:12.4f} {:+12.4f}\n", key, base[key].get<double>(), tuned[key].get<double>(),
               difference.get<double>());
  fmt::print("'{}'\n", (dir / eval::kComparedFile).string());
}

int compare(comm::Session& session, config::CommandLine line) {
  line.overrides.emplace_back("predict_with_generate=true");
  const auto [config, device] = prepare(session, line, config::Purpose::eval);
  const auto comparison = eval::compare(config, session.world(), device);
  if (session.rank() != 0) return kExitOk;
  if (line.json)
    fmt::print("{}\n", comparison.dump());
  else
    print(comparison, config.training.output_dir);
  return kExitOk;
}

int run(comm::Session& session, const config::CommandLine& line) {
  if (line.options["compare"].as<bool>()) return compare(session, line);
  const auto [config, device] = prepare(session, line, config::Purpose::eval);
  const auto result =
      eval::evaluate(config, session.world(), device, {.likelihood = true, .answers = config.eval.predict_with_generate});
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    fmt::print("{}\n", eval::to_json(result, config).dump());
    return kExitOk;
  }
  fmt::print("model       {}{}, in {}\n", result.model, result.adapter.empty() ? "" : " with adapter " + result.adapter,
             result.dtype);
  print(*result.likelihood);
  if (result.answers) print(*result.answers, config.training.output_dir);
  return kExitOk;
}

}  // namespace

extern const Subcommand kEval{"eval", spec, run};

}  // namespace qft::apps

#include "qft/eval/evaluate.h"

#include "subcommand.h"
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft eval";
  s.summary = "loss and perplexity of a model, with its adapter if one is given; with predict_with_generate its answers too";
  s.run_file = config::CommandSpec::RunFile::required;
  s.purpose = config::Purpose::eval;
  s.machine_readable = true;
  return s;
}

nlohmann::ordered_json to_json(const eval::Evaluation& e, const config::RunConfig& config) {
  nlohmann::ordered_json json = {
      {"model_name_or_path", config.model.model_name_or_path},
      {"adapter_name_or_path", e.adapter.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(e.adapter)},
      {"dtype", e.dtype}};
  for (const auto& [key, value] : eval::eval_values(*e.likelihood, config)) json[key] = value;
  json["label_tokens"] = e.likelihood->label_tokens;
  json["tokens"] = e.likelihood->tokens;
  json["items"] = e.likelihood->items;
  if (e.answers)
    for (const auto& [key, value] : e.answers->values()) json[key] = value;
  return json;
}

void print(const eval::PerplexityResult& r) {
  fmt::print("eval_loss   {:.6f}\n", r.loss);
  if (r.perplexity) fmt::print("perplexity  {:.4f}\n", *r.perplexity);
  for (const auto& [name, value] : r.metrics) fmt::print("{}  {:.4f}\n", name, value);
  fmt::print("items {}, tokens {}, label tokens {}, {:.1f} s, {:.0f} tok/s\n", r.items, r.tokens, r.label_tokens, r.seconds,
             static_cast<double>(r.tokens) / r.seconds);
}

void print(const eval::PredictResult& r, const std::filesystem::path& dir) {
  fmt::print(
      "BLEU-4      {:.4f}\nROUGE-1     {:.4f}\nROUGE-2     {:.4f}\nROUGE-L     {:.4f}\n"
      "answers {}, new tokens {}, {:.1f} s, {:.1f} tok/s; '{}'\n",
      r.mean.bleu_4, r.mean.rouge_1, r.mean.rouge_2, r.mean.rouge_l, r.items, r.new_tokens, r.seconds,
      static_cast<double>(r.new_tokens) / r.seconds, (dir / eval::kPredictionsFile).string());
}

int run(comm::Session& session, const config::CommandLine& line) {
  const auto [config, device] = prepare(session, line, config::Purpose::eval);
  const auto result =
      eval::evaluate(config, session.world(), device, {.likelihood = true, .answers = config.eval.predict_with_generate});
  if (session.rank() != 0) return kExitOk;
  if (line.json) {
    fmt::print("{}\n", to_json(result, config).dump());
    return kExitOk;
  }
  fmt::print("model       {}{}, in {}\n", config.model.model_name_or_path,
             result.adapter.empty() ? "" : " with adapter " + result.adapter, result.dtype);
  print(*result.likelihood);
  if (result.answers) print(*result.answers, config.training.output_dir);
  return kExitOk;
}

}  // namespace

extern const Subcommand kEval{"eval", spec, run};

}  // namespace qft::apps

#include "qft/eval/evaluate.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/infer/load_model.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;

PerplexityResult likelihood_of(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                               comm::Communicator& comm) {
  const auto loader = set.loader(config, comm);
  Progress bar("eval", loader->max_micro_batches(), comm.rank() == 0);
  return eval::evaluate(config, instance, *loader, comm, config.eval.predict_logprobs,
                        [&](std::int64_t done) { bar.update(done); });
}

/// As Python's json.dumps() writes them, but for characters that are not ASCII.
std::string line_of(const Prediction& p) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  return fmt::format("{{\"prompt\": {}, \"predict\": {}, \"label\": {}}}\n", quoted(p.prompt), quoted(p.predict),
                     quoted(p.label));
}

void write_answers(const fs::path& dir, const PredictResult& result) {
  std::string lines;
  for (const Prediction& p : result.samples) lines += line_of(p);
  io::atomic_write_file(io::posix_storage(), dir / kPredictionsFile, lines);
  write_results(dir, "predict", result.values());
}

PredictResult answers_of(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                         comm::Communicator& comm, bool files) {
  const activity::Phase phase("predict");
  auto result = predict(instance, *set.pack, set.items, config, comm);
  comm::agreed(comm, [&] {
    if (comm.rank() == 0 && files) write_answers(config.training.output_dir, result);
  });
  return result;
}

double rounded(double value, double scale) {
  return std::round(value * scale) / scale;
}

}  // namespace

PredictResult predict(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                      comm::Communicator& comm) {
  return answers_of(instance, set, config, comm, /*files=*/true);
}

Evaluation evaluate(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, const Wanted& wanted) {
  const fs::path dir = config.training.output_dir;
  const bool writes = comm.rank() == 0 && !dir.empty() && wanted.files;
  comm::agreed(comm, [&] {
    if (writes) io::probe_writable(dir);
  });
  const auto instance = infer::load_for_inference(config, comm, device);
  const auto set = engine::open_eval_data(config, instance->spec().config, comm);
  Evaluation result{config.model.model_name_or_path,
                    engine::adapters_of(config, engine::Use::inference).live.string(),
                    infer::type_of(*instance),
                    {},
                    {}};
  if (wanted.likelihood) {
    result.likelihood = likelihood_of(*instance, set, config, comm);
    comm::agreed(comm, [&] {
      if (writes) write_results(dir, "eval", eval_values(*result.likelihood, config));
    });
  }
  if (wanted.answers) result.answers = answers_of(*instance, set, config, comm, wanted.files);
  return result;
}

nlohmann::ordered_json to_json(const Evaluation& e, const config::RunConfig& config) {
  nlohmann::ordered_json json = {
      {"model_name_or_path", e.model},
      {"adapter_name_or_path", e.adapter.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(e.adapter)},
      {"dtype", e.dtype}};
  if (e.likelihood) {
    for (const auto& [key, value] : eval_values(*e.likelihood, config)) json[key] = value;
    json["label_tokens"] = e.likelihood->label_tokens;
    json["tokens"] = e.likelihood->tokens;
    json["items"] = e.likelihood->items;
  }
  if (e.answers) json.update(nlohmann::ordered_json(e.answers->values()));
  return json;
}

std::map<std::string, double> eval_values(const PerplexityResult& r, const config::RunConfig& config) {
  std::map<std::string, double> values = {{"eval_loss", r.loss},
                                          {"eval_runtime", rounded(r.seconds, 1e4)},
                                          {"eval_samples_per_second", rounded(static_cast<double>(r.items) / r.seconds, 1e3)},
                                          {"eval_steps_per_second", rounded(static_cast<double>(r.steps) / r.seconds, 1e3)}};
  if (r.perplexity) values["perplexity"] = *r.perplexity;
  if (r.perplexity && config.finetuning.stage == "pt") values["eval_perplexity"] = *r.perplexity;
  for (const auto& [name, value] : r.metrics) values["eval_" + name] = value;
  return values;
}

void write_results(const fs::path& dir, const std::string& split, const nlohmann::json& values) {
  nlohmann::ordered_json own;
  for (const auto& [key, value] : values.items())
    own[key] = value.is_number_float() ? json_number(value.get<double>()) : nlohmann::ordered_json(value);
  auto& storage = io::posix_storage();
  io::atomic_write_file(storage, dir / (split + "_results.json"), own.dump(4) + "\n");
  nlohmann::ordered_json all;
  const auto path = dir / "all_results.json";
  if (fs::exists(path)) {
    try {
      all = parse_json<nlohmann::ordered_json>(io::read_text_file(path), path.string());
    } catch (const Error&) {  // cut short by a kill: written anew
    }
    if (!all.is_object()) all = nlohmann::ordered_json::object();
  }
  all.update(own);
  io::atomic_write_file(storage, path, all.dump(4) + "\n");
}

std::string describe(const PredictResult& r, const fs::path& dir) {
  return fmt::format("answers to {} samples in {}: BLEU-4 {:.2f}, ROUGE-1 {:.2f}, ROUGE-2 {:.2f}, ROUGE-L {:.2f}; '{}'", r.items,
                     format_duration(r.seconds), r.mean.bleu_4, r.mean.rouge_1, r.mean.rouge_2, r.mean.rouge_l,
                     (dir / kPredictionsFile).string());
}

}  // namespace qft::eval

// Evaluation without training: loads the requested model, scores it and writes the results to output_dir.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/eval/perplexity.h"
#include "qft/eval/predict.h"
#include "qft/eval/score.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// File in output_dir, named as in LLaMA-Factory, with one line per item: {"prompt": ..., "predict": ..., "label": ...}.
inline constexpr const char* kPredictionsFile = "generated_predictions.jsonl";

/// The parts of an Evaluation to compute, and whether to write them to output_dir.
struct EvaluationParts {
  bool likelihood = true, answers = false, files = true;
};

struct Evaluation {
  std::string model;    ///< name or path as given in the run file
  std::string adapter;  ///< directory; empty without an adapter
  std::string dtype;    ///< torch's name, such as "bfloat16"
  std::optional<PerplexityResult> likelihood;
  std::optional<PredictResult> answers;
  std::optional<ScoreResult> scores;  ///< a reward model or classifier has scores in place of answers
};

/// Returns one flat object: model, adapter and dtype, then eval_values(), tokens and items, and the values() of scores or
/// answers.
nlohmann::ordered_json to_json(const Evaluation& evaluation, const config::RunConfig& config);

/// Runs `qft eval`, and `qft train` without training: loads the model, opens the evaluation set and scores it. If output_dir is
/// set (answers need it) and `wanted.files` is true, rank 0 writes eval_results.json, predict_results.json, all_results.json and
/// generated_predictions.jsonl there. Collective.
Evaluation evaluate(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, const EvaluationParts& wanted);

/// Runs predict() over `set`; rank 0 writes generated_predictions.jsonl, predict_results.json and all_results.json to output_dir.
/// Collective; throws the errors of predict().
PredictResult predict(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                      comm::Communicator& comm);

/// Returns the results by HF's names: eval_loss, eval_runtime, eval_samples_per_second, eval_steps_per_second, perplexity (in
/// stage pt also eval_perplexity, as in LLaMA-Factory) and the objective's metrics ("eval_rewards/chosen"). Each dataset has the
/// same values with its name inserted: "eval_<dataset>_loss".
std::map<std::string, double> eval_values(const PerplexityResult& result, const config::RunConfig& config);
/// Generates answers to `set` and returns their scores by LLaMA-Factory's names: eval_bleu-4, eval_rouge-1 and so on; with
/// eval_on_each_dataset also per dataset. Collective; throws the errors of predict().
std::map<std::string, double> answer_values(engine::Instance& instance, const engine::EvalSet& set,
                                            const config::RunConfig& config, comm::Communicator& comm);
/// True if the metric `name` measures model quality; false for run times, speeds and perplexity (eval_loss determines it).
bool is_quality_metric(std::string_view name);
/// Returns the full name of metric_for_best_model, which may be given with or without "eval_". Throws ConfigError listing the
/// metrics if this run does not report such a metric.
std::string metric_key(const config::RunConfig& config, const engine::EvalSet& set);

/// Writes `values`, a flat object, to <split>_results.json in the output directory `dir` and merges it into all_results.json.
void write_results(const std::filesystem::path& dir, const std::string& split, const nlohmann::json& values);

/// Returns one line for the log.
std::string describe(const PredictResult& result, const std::filesystem::path& dir);
std::string describe(const ScoreResult& result);

}  // namespace qft::eval

// Evaluation without training: the model that was asked for, scored, and its results in output_dir.
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

/// In output_dir, as LLaMA-Factory names it: a line an item, {"prompt": ..., "predict": ..., "label": ...}.
inline constexpr const char* kPredictionsFile = "generated_predictions.jsonl";

/// What an Evaluation is to hold, and whether output_dir gets it.
struct Wanted {
  bool likelihood = true, answers = false, files = true;
};

struct Evaluation {
  std::string model;    ///< as it is named
  std::string adapter;  ///< its directory; empty: none
  std::string dtype;    ///< "bfloat16"
  std::optional<PerplexityResult> likelihood;
  std::optional<PredictResult> answers;
  std::optional<ScoreResult> scores;  ///< of a reward model, in place of answers
};

/// What ran, and eval_values(), tokens and items, PredictResult::values() of what there is: one flat object.
nlohmann::ordered_json to_json(const Evaluation& evaluation, const config::RunConfig& config);

/// `qft eval`, and `qft train` where nothing is trained: loads the model, opens the evaluation set, scores. Where output_dir is
/// given (answers need one) and files are wanted rank 0 writes eval_results.json, predict_results.json, all_results.json and
/// generated_predictions.jsonl there. Collective.
Evaluation evaluate(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, const Wanted& wanted);

/// predict() of `set`; rank 0 writes generated_predictions.jsonl, predict_results.json and all_results.json in output_dir.
/// Collective; throws as predict() does.
PredictResult predict(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                      comm::Communicator& comm);

/// By HF's names: eval_loss, eval_runtime, eval_samples_per_second, eval_steps_per_second, and perplexity (in stage pt
/// eval_perplexity too, as LLaMA-Factory has it); the objective's metrics ("eval_rewards/chosen"). Of each dataset the same after
/// its name: "eval_<dataset>_loss".
std::map<std::string, double> eval_values(const PerplexityResult& result, const config::RunConfig& config);
/// The scores of answers to `set`, by LLaMA-Factory's names: eval_bleu-4, eval_rouge-1 and so on, with eval_on_each_dataset those
/// of each dataset too. Collective; throws as predict() does.
std::map<std::string, double> answer_values(engine::Instance& instance, const engine::EvalSet& set,
                                            const config::RunConfig& config, comm::Communicator& comm);
/// Of a name among those: it says how good the model is, and does not follow from eval_loss as perplexity does.
bool is_score(std::string_view name);
/// The name among those that metric_for_best_model means, with or without "eval_". Throws ConfigError that lists them where it
/// means none.
std::string metric_key(const config::RunConfig& config, const engine::EvalSet& set);

/// <split>_results.json of the output directory `dir`, merged into its all_results.json. `values`: a flat object.
void write_results(const std::filesystem::path& dir, const std::string& split, const nlohmann::json& values);

/// One line for the log.
std::string describe(const PredictResult& result, const std::filesystem::path& dir);
std::string describe(const ScoreResult& result);

}  // namespace qft::eval

// Evaluation without training: the model that was asked for, scored, and its results in output_dir.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"
#include "qft/eval/perplexity.h"
#include "qft/eval/predict.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace qft::eval {

/// What an Evaluation is to hold.
struct Wanted {
  bool likelihood = true, answers = false;
};

struct Evaluation {
  std::string adapter;  ///< its directory; empty: none
  std::string dtype;    ///< "bfloat16"
  std::optional<PerplexityResult> likelihood;
  std::optional<PredictResult> answers;
};

/// `qft eval`, and `qft train` where nothing is trained: loads the model, opens the evaluation set, scores. Where output_dir is
/// given (answers need one) rank 0 writes eval_results.json, predict_results.json and all_results.json there. Collective.
Evaluation evaluate(const config::RunConfig& config, comm::Communicator& comm, c10::Device device, const Wanted& wanted);

/// predict() of `set`, which writes generated_predictions.jsonl; rank 0 writes predict_results.json and all_results.json
/// beside it, in output_dir. Collective; throws as predict() does.
PredictResult predict(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                      comm::Communicator& comm);

/// By HF's names: eval_loss, eval_runtime, eval_samples_per_second, eval_steps_per_second, and perplexity (in stage pt
/// eval_perplexity too, as LLaMA-Factory has it); of other objectives their metrics ("eval_rewards/chosen") instead.
std::map<std::string, double> eval_values(const PerplexityResult& result, const config::RunConfig& config);

/// <split>_results.json of the output directory `dir`, merged into its all_results.json.
void write_results(const std::filesystem::path& dir, const std::string& split, const std::map<std::string, double>& values);

/// One line for the log.
std::string describe(const PredictResult& result, const std::filesystem::path& dir);

}  // namespace qft::eval

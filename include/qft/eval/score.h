// Scores that a reward model gives to the answers of an evaluation set, and labels that a classifier gives to its texts.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/data_setup.h"
#include "qft/engine/instance.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

/// What `qft score` writes in output_dir, unless told otherwise.
inline constexpr const char* kScoresFile = "scores.jsonl";

struct ScoreResult {
  std::string file;  ///< that was written
  bool pairs = false;
  bool classes = false;  ///< of a classifier
  std::int64_t items = 0, tokens = 0;
  double lowest = 0.0, mean = 0.0, highest = 0.0;  ///< of all values
  /// Of pairs: loss, accuracy, rewards/chosen, rewards/rejected, rewards/margins; of texts that have labels: loss, acc.
  std::map<std::string, double> metrics = {};
  double seconds = 0.0;

  /// "predict_loss", "predict_accuracy", ..., "predict_runtime": of pairs, by HF's and LLaMA-Factory's names.
  nlohmann::json values() const;
};

/// `qft score`: loads the reward model and the set that `qft eval` would take, whose items are pairs (stages rm, dpo) or single
/// answers (sft), as the pack or dataset_info.json says; in stage seq_cls a classifier and texts, with labels or without. Rank 0
/// writes a line an item to `file`: {"dataset": name, "index": number of the record in it, "chosen": score, "rejected": score},
/// or "score" instead of the two; of a classifier "label", "probabilities", "logits". Collective; throws ConfigError where there
/// is no such head or the items are of another kind.
ScoreResult score(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                  const std::filesystem::path& file);

/// do_predict in stages rm and seq_cls: the scores of the pairs, or the labels of the texts, of `set`, in output_dir's
/// generated_predictions.jsonl, a line an item as LLaMA-Factory has it, {"chosen": score, "rejected": score}, not rounded;
/// predict_results.json, all_results.json. Collective.
ScoreResult predict_scores(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                           comm::Communicator& comm);

}  // namespace qft::eval

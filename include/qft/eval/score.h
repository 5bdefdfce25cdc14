// Scores the answers of an evaluation set with a reward model, or labels its texts with a classifier.
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

/// Default output file of `qft score`, in output_dir.
inline constexpr const char* kScoresFile = "scores.jsonl";

struct ScoreResult {
  std::string file;  ///< file that was written
  bool pairs = false;
  bool classes = false;  ///< true for a classifier
  bool records = false;  ///< true for embedding models and rerankers: all texts, or all documents, of a record
  bool vectors = false;  ///< true for embedding models: the values are not scores
  std::int64_t items = 0, tokens = 0;
  double lowest = 0.0, mean = 0.0, highest = 0.0;  ///< over all values
  /// Pairs: loss, accuracy, rewards/chosen, rewards/rejected, rewards/margins. Labelled texts: loss, acc.
  std::map<std::string, double> metrics = {};
  double seconds = 0.0;

  /// Returns "predict_loss", "predict_accuracy", ..., "predict_runtime" by HF's and LLaMA-Factory's names.
  nlohmann::json values() const;
};

/// Runs `qft score`: loads the reward model and the set that `qft eval` would take. The items are pairs (stages rm, dpo) or
/// single answers (sft), as the pack or dataset_info.json says. In stage seq_cls it loads a classifier and texts, with or without
/// labels. In stages embedding and reranker the items are anchors or queries with all their documents. Rank 0 writes one line per
/// item to `file`: {"dataset": name, "index": record number in it, "chosen": score, "rejected": score}, or "score" instead of the
/// last two; a classifier writes "label", "probabilities", "logits"; an embedding model "embeddings", the vectors of the anchor,
/// its positive and its negatives; a reranker "scores" and "probabilities" of the documents, the relevant ones first. Collective;
/// throws ConfigError if the model lacks the head or the items are of another kind.
ScoreResult score(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                  const std::filesystem::path& file);

/// Runs do_predict in stages rm and seq_cls: scores the pairs or labels the texts of `set`. Writes generated_predictions.jsonl in
/// output_dir with one line per item as in LLaMA-Factory, {"chosen": score, "rejected": score}, not rounded; also
/// predict_results.json and all_results.json. Collective.
ScoreResult predict_scores(engine::Instance& instance, const engine::EvalSet& set, const config::RunConfig& config,
                           comm::Communicator& comm);

}  // namespace qft::eval

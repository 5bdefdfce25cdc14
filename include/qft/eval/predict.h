// Answers to the questions of an evaluation set, and how alike they are to the expected ones.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/eval/text_metrics.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace qft::eval {

/// In output_dir, as LLaMA-Factory names it.
inline constexpr const char* kPredictionsFile = "generated_predictions.jsonl";

struct PredictResult {
  TextScores mean;  ///< over all items, percent
  std::int64_t items = 0, new_tokens = 0;
  double seconds = 0.0;

  /// By LLaMA-Factory's names: predict_bleu-4, predict_rouge-1, predict_runtime, ...
  std::map<std::string, double> values() const;
};

/// Generates an answer to each item of `pack` that `items` names (null: all). An item's prompt is what comes before its
/// last label span, its label that span. At most per_device_eval_batch_size sequences are in flight on a rank, fewer where
/// their key-value caches would not fit. Rank 0 writes `file`: a JSON line an item in the order of the pack, {"prompt": with
/// special tokens, "predict": , "label": both without them if skip_special_tokens}. Sampling is by the item's number, and
/// means are taken in the order of the pack: neither depends on batch size or ranks. Collective; all get the result.
/// Throws ConfigError naming the item where its prompt is too long for the model, and Error where memory is short.
PredictResult predict(engine::Instance& instance, const pack::PackReader& pack, const loader::ItemSubset& items,
                      const config::RunConfig& config, comm::Communicator& comm, const std::filesystem::path& file);

/// The rank that gets each item, so that the sums of the ranks' costs differ little: the largest first, each to the rank
/// that has least.
std::vector<int> deal(std::span<const std::int64_t> costs, int ranks);

}  // namespace qft::eval

// Answers to the questions of an evaluation set, and how alike they are to the expected ones.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/config/run_config.h"
#include "qft/engine/instance.h"
#include "qft/eval/text_metrics.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::eval {

struct Prediction {
  std::string prompt, predict, label;  ///< the first with special tokens, the other two without them if skip_special_tokens
  TextScores scores;
};

struct PredictResult {
  TextScores mean;  ///< over all items, percent
  std::int64_t items = 0, new_tokens = 0;
  double seconds = 0.0, preparation_seconds = 0.0;  ///< of the answers, of reading the model
  std::int64_t memory_peak = 0;                     ///< bytes since device::reset_peak(), of the rank that needed most
  std::string words;                                ///< what ROUGE counts: "jieba", or "characters" where Han characters were
  std::vector<Prediction> samples;                  ///< on rank 0, in the order of the pack

  /// By LLaMA-Factory's names (predict_bleu-4, predict_rouge-1, predict_runtime, ...) and in their manner.
  nlohmann::json values() const;
};

/// Generates an answer to each item of `pack` that `items` names (null: all). An item's prompt is what comes before its
/// last label span, its label that span. At most per_device_eval_batch_size sequences are in flight on a rank, fewer where
/// their key-value caches would not fit. Sampling is by the item's number, and means are taken in the order of the pack:
/// neither depends on batch size or ranks. Rank 0 warns where Chinese words were wanted and no dictionary is there. Collective;
/// all get the result. Throws ConfigError naming the item where its prompt is too long for the model, and Error where memory is
/// short.
PredictResult predict(engine::Instance& instance, const pack::PackReader& pack, const loader::ItemSubset& items,
                      const config::RunConfig& config, comm::Communicator& comm);

}  // namespace qft::eval

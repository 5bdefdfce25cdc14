// Generates answers to the questions of an evaluation set and compares them with the expected answers.
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
  std::string prompt, predict, label;  ///< prompt keeps special tokens; the others drop them if skip_special_tokens
  TextScores scores;
};

struct PredictResult {
  TextScores mean;  ///< over all items, percent
  std::int64_t items = 0, new_tokens = 0;
  double seconds = 0.0, preparation_seconds = 0.0;  ///< to generate the answers; to load the model
  std::int64_t memory_peak = 0;                     ///< bytes since device::reset_peak(), maximum over ranks
  std::string words;                ///< unit that ROUGE counts: "jieba"; "characters" if Han text had no dictionary
  std::vector<Prediction> samples;  ///< on rank 0 only, in the pack's order

  /// Returns LLaMA-Factory's names (predict_bleu-4, predict_rouge-1, predict_runtime, ...) with its rounding.
  nlohmann::json values() const;
};

/// Generates an answer to each item of `pack` that `items` lists (null: all items). The item's last label span is its label, the
/// tokens before that span are its prompt. At most per_device_eval_batch_size sequences are in flight on a rank, fewer if their
/// key-value caches do not fit. The item's number seeds its sampling, and means are summed in the pack's order, so neither
/// depends on batch size or ranks. Rank 0 warns if Chinese text needs a dictionary and there is none. Collective; every rank gets
/// the result. Throws ConfigError naming the item if its prompt is too long for the model, and Error if memory is short.
PredictResult predict(engine::Instance& instance, const pack::PackReader& pack, const loader::ItemSubset& items,
                      const config::RunConfig& config, comm::Communicator& comm);

}  // namespace qft::eval

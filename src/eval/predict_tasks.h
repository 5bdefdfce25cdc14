// The evaluation items that one rank answers.
#pragma once

#include "qft/config/run_config.h"
#include "qft/loader/schedule.h"
#include "qft/model/config.h"
#include "qft/pack/reader.h"

#include <cstdint>
#include <vector>

namespace qft::eval {

struct PredictTask {
  std::int64_t order = 0;  ///< position among all items of the evaluation set
  std::int64_t item = 0;   ///< in the pack
  std::vector<std::int32_t> prompt, label;
  std::int64_t max_new_tokens = 0;
  bool shortened = false;  ///< the model's positions limit max_new_tokens
};

/// Returns this rank's share of the items, the longest first, read from the pack. Not collective.
std::vector<PredictTask> tasks_of(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config,
                                  const model::ModelConfig& model, int rank, int ranks);

}  // namespace qft::eval

// Finds problems in a run's data and counts the data: the output of `qft-pack check`.
#pragma once

#include "qft/config/run_config.h"
#include "qft/pack/corpus.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::loader {

/// A kind of finding. Faults make samples useless or wrong; other findings are only reported.
struct Finding {
  std::string name, meaning;
  bool is_fault = false;
  std::int64_t count = 0;
  std::vector<std::string> examples;  // the first few: "file:line: ..."
};

struct DataReport {
  std::vector<Finding> findings;  // all kinds, in a fixed order
  std::int64_t records = 0, samples = 0, tokens = 0, label_tokens = 0, cutoff_len = 0;
  std::int64_t shortest = 0, median = 0, p90 = 0, longest = 0;               // tokens per sample, after cutoff_len
  bool token_labels = true;                                                  // the stage learns tokens
  std::optional<std::int64_t> longest_text;                                  // tokens, if samples have any number of texts
  std::int64_t global_batch_size = 0, steps_per_epoch = 0, total_steps = 0;  // 0: no step can be made

  bool has_faults() const;
  nlohmann::ordered_json to_json() const;
  std::string to_text() const;
};

/// Reads and encodes the datasets of `part` without writing anything; broken records become findings. `ranks` determines the
/// number of steps. Throws ConfigError if the configuration does not fit the data.
DataReport check_data(config::RunConfig config, pack::CorpusPart part, int ranks);

}  // namespace qft::loader

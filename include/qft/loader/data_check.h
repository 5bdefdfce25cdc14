// What is wrong with a run's data, and how much there is of it: what `qft-pack check` prints.
#pragma once

#include "qft/config/run_config.h"
#include "qft/pack/corpus.h"

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::loader {

/// A kind of finding. Faults make samples useless or wrong; the others are only said.
struct Finding {
  std::string name, meaning;
  bool is_fault = false;
  std::int64_t count = 0;
  std::vector<std::string> examples;  // the first few: "file:line: ..."
};

struct DataReport {
  std::vector<Finding> findings;  // each kind, in a fixed order
  std::int64_t records = 0, samples = 0, tokens = 0, label_tokens = 0, cutoff_len = 0;
  std::int64_t shortest = 0, median = 0, p90 = 0, longest = 0;               // tokens of a sample, after cutoff_len
  std::int64_t global_batch_size = 0, steps_per_epoch = 0, total_steps = 0;  // 0: no step can be made

  bool has_faults() const;
  nlohmann::ordered_json to_json() const;
  std::string to_text() const;
};

/// Reads and encodes the datasets of `part` without writing anything; broken records are findings. `ranks`:
/// for the number of steps. Throws ConfigError where the configuration does not fit the data.
DataReport check_data(config::RunConfig config, pack::CorpusPart part, int ranks);

}  // namespace qft::loader

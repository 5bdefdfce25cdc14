// Runs with Megatron's keys: ms-swift's `megatron` commands and Megatron-LM's arguments. Their defaults apply, and some keys
// depend on others.
#pragma once

#include <string>
#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// The result of reading a run of Megatron.
struct MegatronRun {
  bool used = false;              // true if the settings are a run of Megatron
  std::vector<Setting> settings;  // with qft's keys
  std::vector<Translation::Default> defaults;
  std::vector<std::string> notes;
  std::vector<WorldClaim> claims;  // the global batch, which must divide into micro-batches
};

/// Reads the schedule (lr_decay_style, min_lr), the optimizer's arguments and the global batch. Throws ConfigError for min_lr in
/// a run that is not one of Megatron, and for values that qft does not have.
MegatronRun read_megatron(const std::vector<Setting>& settings);

}  // namespace qft::dialects

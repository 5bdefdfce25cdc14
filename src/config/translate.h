// From the names of other tools to our own keys.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <vector>

#include "apply.h"
#include "llama_factory_v1.h"

namespace qft::config {

/// Settings under our own keys only; unknown keys stay as they are. Moot keys leave a note, ranks a claim.
struct Translation {
  std::vector<Setting> settings;
  std::vector<Setting> fallbacks;   // count if the key is not set otherwise
  std::vector<Setting> earlier;     // of the run that wrote the adapter or model; count if the key is still not set
  std::vector<V1Default> defaults;  // of LLaMA-Factory's version 1, where its keys are used
  std::vector<std::string> notes;
  std::vector<WorldClaim> claims;
  Dialect dialect = Dialect::own;
};

/// Throws ConfigError for refused keys, and for those with two meanings where nothing tells which is meant.
/// `own` names our keys.
Translation translate(const std::vector<Setting>& settings, Purpose purpose, const std::vector<std::string_view>& own);

}  // namespace qft::config

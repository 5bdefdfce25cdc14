// Translates names of other tools to qft's keys.
#pragma once

#include "qft/config/run_config.h"

#include <string>
#include <vector>

#include "apply.h"
#include "llama_factory_v1.h"

namespace qft::config {

/// Settings with qft's keys; unknown keys are unchanged. Keys without effect leave a note, numbers of ranks a claim.
struct Translation {
  std::vector<Setting> settings;
  std::vector<Setting> fallbacks;   // apply if nothing else sets the key
  std::vector<Setting> earlier;     // from the run that wrote the adapter or model; apply if the key is still unset
  std::vector<V1Default> defaults;  // LLaMA-Factory's version 1, if its keys are used
  std::vector<std::string> notes;
  std::vector<WorldClaim> claims;
  Dialect dialect = Dialect::own;
};

/// Translates the settings. `own` lists qft's keys. Throws ConfigError for refused keys and for keys with two meanings if nothing
/// decides between them.
Translation translate(const std::vector<Setting>& settings, Purpose purpose, const std::vector<std::string_view>& own);

}  // namespace qft::config

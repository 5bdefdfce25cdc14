// What ms-swift's load_args and load_data_args ask for: settings of the run that wrote an adapter or a model.
#pragma once

#include "qft/config/run_config.h"

#include <vector>

#include "setting.h"

namespace qft::config {

/// The settings of run.json beside the adapter (beside its run, where it is a checkpoint), else beside the model, that `purpose`
/// reads and `own` does not give: template, system message and element type; with load_data_args the data, the held-out part and
/// cutoff_len too. `typed`: as given, with ms-swift's names; `own`: under ours. Those that differ from the defaults. Reads files.
/// Throws ConfigError where load_data_args is true and no run.json is there, or its run had nothing to evaluate.
std::vector<Setting> settings_of_earlier_run(const std::vector<Setting>& typed, const std::vector<Setting>& own, Purpose purpose);

}  // namespace qft::config

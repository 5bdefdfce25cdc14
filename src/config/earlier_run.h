// Settings of the run that wrote an adapter or a model: it is used as it was trained.
#pragma once

#include "qft/config/run_config.h"

#include <vector>

#include "setting.h"

namespace qft::config {

/// The settings of run.json in the folder of the adapter (of a checkpoint also in the folder above), else of the model, that
/// `purpose` reads and `own` does not give: template, system message, element type and quantisation; with load_data_args the
/// data, the held-out part and cutoff_len too; none if load_args is false. Only those that differ from the defaults. `typed`: as
/// given, with the names of other tools; `own`: under our names. Reads files. Throws ConfigError if load_data_args is true and
/// there is no run.json, or its run had nothing to evaluate.
std::vector<Setting> settings_of_earlier_run(const std::vector<Setting>& typed, const std::vector<Setting>& own, Purpose purpose);

}  // namespace qft::config

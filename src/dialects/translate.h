// Translates names of other tools to qft's keys, and reads the settings of the run that wrote an adapter or a model, so that
// programs use it as it was trained.
#pragma once

#include <vector>

#include "config_names.h"

namespace qft::dialects {

/// Translates the settings. Keys without effect leave a note, numbers of ranks a claim. Throws ConfigError for refused keys, and
/// for keys with two meanings if nothing decides between them.
Translation translate(std::vector<Setting> settings, Purpose purpose);

/// Reads run.json in the folder of the adapter, else of the model (for a checkpoint also in the folder above). Returns its
/// settings that `purpose` reads, that `own` does not give and that differ from the defaults: template, system message, element
/// type and quantisation; for an embedding model, a reranker or a classifier also the stage and its keys; with load_data_args
/// also the data, the held-out part and cutoff_len; nothing if load_args is false. Warns of prompts in `own` that differ from the
/// run's. `typed` has the settings as given, with the names of other tools; `own` has them with qft's names. Throws ConfigError
/// if load_data_args is true, but there is no run.json or its run had nothing to evaluate.
std::vector<Setting> settings_of_earlier_run(const std::vector<Setting>& typed, const std::vector<Setting>& own, Purpose purpose);

}  // namespace qft::dialects

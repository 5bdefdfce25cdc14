// Starting a program with a run file.
#pragma once

#include "qft/config/command_line.h"
#include "qft/config/run_config.h"

#include <optional>

namespace qft::config {

/// True if `qft train` trains: do_train if given, else true unless do_eval or do_predict is given as true (as in LLaMA-Factory,
/// these then run alone).
bool trains(const RunConfig& config);
/// The same from the given keys alone.
bool trains_by(std::optional<bool> do_train, bool do_eval, bool do_predict);

/// Logs the configuration's notes and removes them, so that each is logged once.
void log_notes(RunConfig& config);

/// Calls line.load(), sets up the log at --log-level (else log_level) and calls log_notes().
RunConfig start(const CommandLine& line, Purpose purpose, int rank = 0, int ranks = 1);

}  // namespace qft::config

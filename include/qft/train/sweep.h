// The runs of a sweep, one after another in one job.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/sweep.h"

#include <functional>
#include <string>
#include <vector>

namespace qft::train {

/// "1<tab>learning_rate=1e-4 lora_rank=8<tab>out/learning_rate=1e-4+lora_rank=8", a line a run: what a script sizes a job array
/// by.
std::string list_sweep(const std::vector<config::SweepRun>& runs);

/// Gives a run that has no pack yet those of another run of the sweep, by hard links: the pack is used if it is made of the same
/// inputs, and replaced else. Rank 0 only.
void share_packs(const std::vector<config::SweepRun>& runs, const config::SweepRun& run);

/// Calls `train` with the line of each run. A run that fails on all ranks is noted, and the next one goes on; a request to stop
/// ends the sweep. At its end the runs are compared, on standard output and in compare.html. Returns 0, 1 if a run failed, or 75
/// if a request ended it: the same command goes on there. Collective.
int run_sweep(const std::vector<config::SweepRun>& runs, comm::Session& session,
              const std::function<int(const config::CommandLine&)>& train);

}  // namespace qft::train

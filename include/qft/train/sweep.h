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

/// Trains a run from its line, and returns its exit code. Rank 0 calls `accepted` once output_dir is the run's.
using TrainRun = std::function<int(const config::CommandLine& line, const std::function<void()>& accepted)>;

/// Calls `train` for one run alone, as a task of a job array does. If it has no pack yet it gets those of another run of the
/// sweep, by hard links: the pack is used if it is made of the same inputs, and replaced else. Collective.
int run_of_sweep(const std::vector<config::SweepRun>& runs, const config::SweepRun& run, comm::Session& session,
                 const TrainRun& train);

/// Calls `train` for each run. A run that fails on all ranks is noted, and the next one goes on; a request to stop ends the
/// sweep. At its end the runs are compared, on standard output and in compare.html. Returns 0, 1 if a run failed, or 75 if a
/// request ended it: the same command goes on there, and overwrite_output_dir removes none of the runs that were finished.
/// Collective.
int run_sweep(const std::vector<config::SweepRun>& runs, comm::Session& session, const TrainRun& train);

}  // namespace qft::train

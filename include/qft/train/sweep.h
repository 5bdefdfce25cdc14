// Trains the runs of a sweep, one after another in one job.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/sweep.h"

#include <functional>
#include <string>
#include <vector>

namespace qft::train {

/// Returns one line per run: "1<tab>learning_rate=1e-4 lora_rank=8<tab>out/learning_rate=1e-4+lora_rank=8". Scripts use it to
/// size a job array.
std::string list_sweep(const std::vector<config::SweepRun>& runs);

/// Trains the run of a command line and returns its exit code. Rank 0 calls `accepted` once output_dir belongs to the run.
using TrainRun = std::function<int(const config::CommandLine& line, const std::function<void()>& accepted)>;

/// Trains one run of a sweep, as a task of a job array does. If the run has no pack yet, hard-links the pack of another run;
/// training uses that pack if its inputs are the same, and replaces it otherwise. Collective.
int run_of_sweep(const std::vector<config::SweepRun>& runs, const config::SweepRun& run, comm::Session& session,
                 const TrainRun& train);

/// Trains all runs of a sweep. If a run fails on all ranks, notes it and continues with the next run; a request to stop ends the
/// sweep. At the end compares the runs on standard output and in compare.html. Returns 0, 1 if a run failed, or 75 after a
/// request to stop. The same command then continues there, and overwrite_output_dir does not remove finished runs. Collective.
int run_sweep(const std::vector<config::SweepRun>& runs, comm::Session& session, const TrainRun& train);

}  // namespace qft::train

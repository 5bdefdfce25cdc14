// Reads this process' job from the batch system (SLURM, PBS).
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/command.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qft::job {

/// The time at which the batch system ends the job.
struct JobEnd {
  std::optional<double> at;  ///< Unix time
  std::string note;          ///< why the end of a batch job is unknown or inexact, and what to do
};

/// Runs a program of the batch system and returns its answer.
using QueryProgram = std::function<CommandOutput(const std::vector<std::string>& command)>;

/// A batch job since it last left the queue.
struct JobRun {
  std::string job;                           ///< SLURM_JOB_ID or PBS_JOBID, which survive a requeue; empty outside a batch job
  std::optional<std::int64_t> restarts = 0;  ///< how often it was requeued; nullopt: unknown
};

/// Reads the restarts from SLURM_RESTART_COUNT, for PBS from run_count in `qstat -f`. A program started by hand in an interactive
/// job counts as not requeued.
JobRun find_job_run(const QueryProgram& ask);
/// Returns this process's job. Asks once, for at most ten seconds. Call on rank 0: a launcher may not pass the job's variables to
/// other ranks.
const JobRun& this_job();
/// True if `now` is the job of `before` after a requeue. If the restarts are unknown: true if it is the same job.
bool was_requeued(const JobRun& before, const JobRun& now);

/// Returns the end of the job: QFT_JOB_END or SLURM_JOB_END_TIME if set (Unix time). Else SLURM's end time from `scontrol show
/// job`, or PBS's limit (`qstat -f`, or Torque's PBS_WALLTIME) counted from the job's start; if the start is unknown, from `now`,
/// with a note. Throws ConfigError if a variable is not a number.
JobEnd find_job_end(double now, const QueryProgram& ask);

/// The same for all ranks. Rank 0 asks, at most ten seconds per program, and logs the note. Collective.
std::optional<double> job_end(comm::Communicator& comm);

}  // namespace qft::job

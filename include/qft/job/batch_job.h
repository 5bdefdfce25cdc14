// What the batch system (SLURM, PBS) says about this process' job.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/command.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft::job {

/// When the batch system ends the job.
struct JobEnd {
  std::optional<double> at;  ///< Unix time
  std::string note;          ///< of a batch job whose end is not known, or not exactly: why, and what to do
};

/// How the batch system's programs are asked.
using Ask = std::function<Answer(const std::vector<std::string>& command)>;

/// A batch job since it was last taken from the queue.
struct JobRun {
  std::string job;                           ///< SLURM_JOB_ID or PBS_JOBID, which stay; empty outside of one
  std::optional<std::int64_t> restarts = 0;  ///< how often it has been put back into the queue; nothing: not known
};

/// SLURM counts in SLURM_RESTART_COUNT, PBS in what `qstat -f` shows as run_count; what a user starts by hand in an interactive
/// job was not put back.
JobRun find_job_run(const Ask& ask);
/// That of this process, asked for once, for ten seconds at most. For rank 0: a launcher may not give the others the job's
/// variables.
const JobRun& this_job();
/// Whether `now` is the job of `before`, put back into the queue since. Where that is not known: the same job.
bool was_requeued(const JobRun& before, const JobRun& now);

/// QFT_JOB_END or SLURM_JOB_END_TIME where one is set (Unix time). Else what `scontrol show job` says in a job of SLURM, and
/// in one of PBS its limit (`qstat -f`, or Torque's PBS_WALLTIME) counted from the job's start; where the start is not to be
/// had, from `now`, with a note. Throws ConfigError where a variable is no number.
JobEnd find_job_end(double now, const Ask& ask);

/// The same for all ranks: rank 0 asks, for ten seconds at most a program, and logs the note. Collective.
std::optional<double> job_end(comm::Communicator& comm);

}  // namespace qft::job

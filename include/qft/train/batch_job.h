// What the batch system says of the job that this process is part of.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qft/comm/communicator.h"
#include "qft/core/command.h"

namespace qft::train {

/// The batch job's name, the same when it is put back into the queue (SLURM_JOB_ID, PBS_JOBID); empty outside of one.
std::string batch_job();

/// When the batch system ends the job.
struct JobEnd {
  std::optional<double> at;  ///< Unix time
  std::string note;          ///< of a batch job whose end is not known, or not exactly: why, and what to do
};

/// How the batch system's programs are asked.
using Ask = std::function<Answer(const std::vector<std::string>& command)>;

/// QFT_JOB_END or SLURM_JOB_END_TIME where one is set (Unix time). Else what `scontrol show job` says in a job of SLURM, and
/// in one of PBS its limit (`qstat -f`, or Torque's PBS_WALLTIME) counted from the job's start; where the start is not to be
/// had, from `now`, with a note. Throws ConfigError where a variable is no number.
JobEnd find_job_end(double now, const Ask& ask);

/// The same for all ranks: rank 0 asks, for ten seconds at most a program, and logs the note. Collective.
std::optional<double> job_end(comm::Communicator& comm);

}  // namespace qft::train

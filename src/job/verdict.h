// How a job ends: every rank reports its outcome, and rank 0 finds the one exit code for all.
#pragma once

#include <chrono>
#include <string>

#include <mpi.h>

namespace qft::job {

/// What became of one rank.
struct Outcome {
  int exit_code = 0;
  std::string error;  ///< empty: it returned
};

/// How long a failed rank waits for the others to report before it ends the job.
inline constexpr std::chrono::milliseconds kGrace{3000};

/// Returns the job's exit code on all ranks once all of them called it; prints each distinct error once, with
/// its ranks. If a rank failed and others do not come within `grace`, prints the errors known and calls
/// MPI_Abort.
int settle(const Outcome& outcome, MPI_Comm control, std::chrono::milliseconds grace = kGrace);

}  // namespace qft::job

// The end of a program. Private to job.
#pragma once

namespace qft::job {

/// From now on this process only ends: requests to stop change nothing and print nothing. (mpirun sends SIGTERM to the ranks of
/// a job in which one failed.)
void expect_end();

}  // namespace qft::job

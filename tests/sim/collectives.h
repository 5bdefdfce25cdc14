// Collectives between simulated devices with NCCL's calls. The back end "sim" offers this stand-in for NCCL as its part "comm". A
// group's ranks run on one machine, in processes or threads, and meet in shared memory. Operations run in their streams and wait
// for their peers as late as NCCL may. They also check conditions that NCCL does not check: memory belongs to this rank's device,
// the ranks' calls match, one thread calls at a time, and ranks do not wait for each other in a ring.
//
// Failures look as with NCCL: state() is failed, and the operation hangs until abort(). If nobody aborts for 20 seconds, the
// operation throws in its stream, so that a host waiting there also learns the reason.
//
// Environment: QFT_SIM_COLLECTIVE_FAULT injects a fault. Its form is KIND:N or KIND:N@RANK. KIND is call (the N-th call is
// refused), stall (the N-th operation never starts) or error (an error appears after the N-th operation), in groups in which this
// process is RANK. QFT_SIM_COLLECTIVE_LIMIT ends a wait for a peer after this number of seconds (0, the default: never).
#pragma once

#include <chrono>
#include <string>

namespace qft::sim {

/// Returns a `const qft::comm::CollectiveLibrary*`.
const void* comm_part();

enum class Fault { call, stall, error };

/// Makes operation number `operation` (1: the next one) fail on rank `rank` of its group, or on any rank (-1).
void inject(Fault fault, int operation, int rank = -1);
/// The same for a fault in QFT_SIM_COLLECTIVE_FAULT's form. Throws c10::Error if the form is invalid.
void inject(const std::string& words);
/// Cancels all faults that have not happened.
void clear_faults();

/// Limits how long operations wait for a peer; 0: no limit.
void limit_waits(std::chrono::milliseconds limit);

}  // namespace qft::sim

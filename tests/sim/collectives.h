// Collectives between simulated devices, with NCCL's calls: the stand-in for it that the back end "sim" gives as its part "comm".
// Groups are of ranks on one machine, in processes or threads, which meet in memory that they share. Operations run in their
// streams, wait for their peers as late as NCCL's may, and check what NCCL does not: that memory is this rank's device's, that
// the ranks' calls match, that one thread calls at a time, and that no rank waits for one that waits for it.
//
// What fails shows as with NCCL: state() is failed, and the operation hangs until abort(). Where nobody aborts for 20 seconds
// it throws in its stream, so that a host that waits there learns what happened as well.
//
// Environment: QFT_SIM_COLLECTIVE_FAULT tells what fails, as KIND:N or KIND:N@RANK, where KIND is call (the N-th call is
// refused), stall (the N-th operation never starts) or error (one appears after the N-th operation), in groups where this process
// is RANK; QFT_SIM_COLLECTIVE_LIMIT ends a wait for a peer after so many seconds (0, the default: never).
#pragma once

#include <chrono>
#include <string>

namespace qft::sim {

/// A `const qft::comm::CollectiveLibrary*`.
const void* comm_part();

enum class Fault { call, stall, error };

/// The operation number `operation` from now on (1: the next) of ranks `rank` of their groups, or of any (-1), fails so.
void inject(Fault fault, int operation, int rank = -1);
/// The same in the words of QFT_SIM_COLLECTIVE_FAULT. Throws c10::Error where it is not of that form.
void inject(const std::string& words);
/// No fault that has not happened yet happens.
void clear_faults();

/// How long operations wait for a peer; 0: without end.
void limit_waits(std::chrono::milliseconds limit);

}  // namespace qft::sim

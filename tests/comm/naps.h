// Counts the naps of a test program; include it once per program.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace qft::comm::test {

/// Naps of this thread so far.
inline thread_local long naps = 0;

}  // namespace qft::comm::test

/// This definition replaces the C library's.
extern "C" int nanosleep(const timespec* time, timespec* left) {
  ++qft::comm::test::naps;
  return static_cast<int>(syscall(SYS_nanosleep, time, left));
}

// Counts the naps of a test's program: to be included once in it.
#pragma once

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace qft::comm::test {

/// Of this thread so far.
inline thread_local long naps = 0;

}  // namespace qft::comm::test

/// The program's own takes the place of the C library's.
extern "C" int nanosleep(const timespec* time, timespec* left) {
  ++qft::comm::test::naps;
  return static_cast<int>(syscall(SYS_nanosleep, time, left));
}

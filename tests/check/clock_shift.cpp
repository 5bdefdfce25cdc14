// Preloaded into a program, this shifts its wall clock by QFT_CLOCK_SHIFT seconds. Time namespaces only shift the other clocks.
#include <cstdlib>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  static const char* const shift = std::getenv("QFT_CLOCK_SHIFT");
  if (result == 0 && clock == CLOCK_REALTIME && shift != nullptr) time->tv_sec += std::atoi(shift);
  return result;
}

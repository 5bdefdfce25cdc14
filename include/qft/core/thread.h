// Threads whose making may fail: a user, a job and a container have limits.
#pragma once

#include <functional>
#include <thread>

namespace qft {

/// A thread that runs `body`. Throws Error that names the limit (ulimit -u, pids.max) where the system makes no more.
std::thread start_thread(std::function<void()> body);

/// Throws the same Error if this process cannot have `count` more threads: libraries that make their own end the program, or wait
/// for ever.
void require_threads(int count);

}  // namespace qft

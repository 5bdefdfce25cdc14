// Starts threads and reports limits: a user, a job and a container may limit their number.
#pragma once

#include <functional>
#include <thread>

namespace qft {

/// Starts a thread that runs `body`. If the system refuses, throws Error that names the limit (ulimit -u, pids.max).
std::thread start_thread(std::function<void()> body);

/// Throws the same Error if this process cannot start `count` more threads. Call this before libraries that start their own
/// threads: some of these end the program on failure, or wait forever.
void require_threads(int count);

}  // namespace qft

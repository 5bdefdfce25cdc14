// Starts threads, and runs one function on several. Reports limits: a user, a job and a container may limit the number of
// threads.
#pragma once

#include <functional>
#include <thread>

namespace qft {

/// Starts a thread that runs `body`. If the system refuses, throws Error that names the limit (ulimit -u, pids.max).
std::thread start_thread(std::function<void()> body);

/// Throws the same Error if this process cannot start `count` more threads. Call this before libraries that start their own
/// threads: some of these end the program on failure, or wait forever.
void require_threads(int count);

/// Runs body(0) .. body(count - 1) at the same time, body(0) on this thread. When all have returned, rethrows the exception of
/// the lowest number that threw.
void run_workers(int count, const std::function<void(int)>& body);

}  // namespace qft

#include "qft/core/thread.h"

#include "qft/core/error.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <system_error>
#include <vector>

namespace qft {
namespace {

std::string process_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur);
}

}  // namespace

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    fail(
        "cannot start another thread ({}): this user may have {} processes and threads at once (ulimit -u), and a job or "
        "container may set its own limit (pids.max of its cgroup): raise it, or set OMP_NUM_THREADS to fewer threads",
        error.code().message(), process_limit());
  }
}

void require_threads(int count) {
  std::mutex mutex;
  std::condition_variable wake;
  bool ends = false;
  std::vector<std::thread> threads;
  const auto end_all = [&] {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (int i = 0; i < count; ++i)
      threads.push_back(start_thread([&] {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return ends; });
      }));
  } catch (...) {
    end_all();
    throw;
  }
  end_all();
}

void run_workers(int count, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  const auto run = [&](int worker) {
    try {
      body(worker);
    } catch (...) {
      errors[static_cast<std::size_t>(worker)] = std::current_exception();
    }
  };
  {
    require_threads(count - 1);  // check first: workers may wait for each other, so start all or none
    std::vector<std::jthread> threads;
    for (int worker = 1; worker < count; ++worker) threads.emplace_back(run, worker);
    run(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace qft

#include "qft/core/workers.h"

#include "qft/core/thread.h"

#include <exception>
#include <thread>
#include <vector>

namespace qft {

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

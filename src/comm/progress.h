// The thread that drives MPI's non-blocking operations while the program computes, because MPI progresses only inside its calls.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "mpi_support.h"

namespace qft::comm {

/// One per process, owned by the Session; needs MPI_THREAD_MULTIPLE. Sleeps while no operation is in flight.
class ProgressThread {
 public:
  ProgressThread();
  ~ProgressThread();

  /// Drives `work` until it is complete.
  void add(std::shared_ptr<MpiWork> work);

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<MpiWork>> incoming_;
  bool stop_ = false;
  std::thread thread_;
};

/// Starts or ends the process's progress thread.
void start_progress_thread();
void stop_progress_thread();
bool progress_thread_runs();

/// Returns a Work for `state`, driven by the progress thread if there is one.
Work launch(std::shared_ptr<MpiWork> state);

}  // namespace qft::comm

#include "progress.h"

#include "qft/core/thread.h"

#include <chrono>
#include <iterator>
#include <sys/prctl.h>

#include "backoff.h"

namespace qft::comm {

namespace {

// Minimum time between two polls: short compared with a transfer of a megabyte, long compared with a poll.
constexpr std::chrono::microseconds kInterval{50};
// Many messages are in flight. The thread may poll later than a thread that waits for one message, and each poll takes time from
// the computation.
constexpr int kIntervalFactor = 16;

std::unique_ptr<ProgressThread>& instance() {
  static std::unique_ptr<ProgressThread> thread;
  return thread;
}

}  // namespace

ProgressThread::ProgressThread() : thread_(start_thread([this] { run(); })) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ProgressThread::add(std::shared_ptr<MpiWork> work) {
  {
    const std::lock_guard lock(mutex_);
    incoming_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void ProgressThread::run() {
  prctl(PR_SET_NAME, "qft-progress");
  prctl(PR_SET_TIMERSLACK, 1000);  // in nanoseconds; the default of 50 us would double the interval
  std::vector<std::shared_ptr<MpiWork>> active;
  std::uint64_t seen = completions();
  auto since = std::chrono::steady_clock::now();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (active.empty()) wake_.wait(lock, [this] { return stop_ || !incoming_.empty(); });
      if (stop_) return;
      std::move(incoming_.begin(), incoming_.end(), std::back_inserter(active));
      incoming_.clear();
    }
    if (operations_abandoned()) return;
    std::erase_if(active, [](const std::shared_ptr<MpiWork>& work) { return work->progress(); });
    const auto now = std::chrono::steady_clock::now();
    if (seen != completions()) seen = completions(), since = now;
    if (active.empty()) since = now;
    if (!active.empty()) std::this_thread::sleep_for(poll_interval((now - since) * kIntervalFactor, kInterval));
  }
}

void start_progress_thread() {
  instance() = std::make_unique<ProgressThread>();
}
bool progress_thread_runs() {
  return instance() != nullptr;
}
void stop_progress_thread() {
  instance().reset();
}

Work launch(std::shared_ptr<MpiWork> state) {
  if (state->test()) return {};
  if (auto& thread = instance()) thread->add(state);
  return Work(std::move(state));
}

}  // namespace qft::comm

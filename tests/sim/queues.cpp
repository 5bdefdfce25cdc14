#include "queues.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "report.h"
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

using namespace std::chrono_literals;
constexpr auto kIdleTime = 5ms;  // blocking work that nobody waits for starts after this time
constexpr auto kLastWork = 1s;   // work gets this time to end when the process ends
constexpr auto kPause = 100us;   // pause if all remaining work is not_yet

}  // namespace

Queues::Queue& Queues::queue(int stream) {
  while (queues_.size() <= static_cast<std::size_t>(stream)) queues_.emplace_back();
  return queues_[static_cast<std::size_t>(stream)];
}

Mark Queues::push(int stream, Work work) {
  Queue& q = queue(stream);
  join(q.clock, host_);
  advance(q.clock, stream, ++q.pushed);
  if (work.counted) ++counters.queued;
  if (work.blocking) {
    ++blocking_;
    start_worker();
    changed_.notify_all();
  }
  q.waiting.push_back(std::move(work));
  return {stream, q.pushed};
}

void Queues::want(Mark mark) {
  Queue& q = queue(mark.stream);
  if (q.wanted >= mark.at) return;
  const std::uint64_t from = std::max(q.wanted, q.done);
  q.wanted = mark.at;
  for (std::uint64_t at = from; at < mark.at; ++at)
    for (const Mark& before : q.waiting[at - q.done].after) want(before);
}

void Queues::want_blocking() {
  for (int s = 0; s < streams(); ++s) {
    const Queue& q = queue(s);
    for (std::size_t i = 0; i < q.waiting.size(); ++i)
      if (q.waiting[i].blocking) want({s, q.done + i + 1});
  }
}

bool Queues::ready(const Queue& queue) {
  if (queue.waiting.empty() || queue.stuck) return false;
  const auto& after = queue.waiting.front().after;
  return std::all_of(after.begin(), after.end(), [&](Mark mark) { return done(mark); });
}

// The last stream first, because hosts queue streams in the order in which they should run; any stream if a seed is given.
int Queues::draw() {
  std::vector<int> candidates;
  for (int s = 0; s < streams(); ++s)
    if (const Queue& q = queue(s); q.done < q.wanted && ready(q)) candidates.push_back(s);
  if (candidates.empty()) return -1;
  if (!seeded_ || random_() % 2 == 0) return candidates.back();
  return candidates[random_() % candidates.size()];
}

void Queues::do_first(Lock& lock, int stream) {
  Queue& q = queue(stream);
  Progress progress = Progress::done;
  if (Work& work = q.waiting.front(); work.run) {
    // References to elements of a deque stay valid while others are pushed at its end.
    running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      progress = work.run();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    running_ = false;
    if (failure && !failure_) failure_ = failure;
  }
  if (progress == Progress::not_yet) {
    q.stuck = true;
    ++q.tries;
  } else {
    Work done = std::move(q.waiting.front());
    q.waiting.pop_front();
    ++q.done;
    if (done.run && done.counted) ++counters.run;
    if (done.blocking) --blocking_;
    for (Queue& other : queues_) other.stuck = false;
    lock.unlock();
    done = {};  // its captures may be large
    lock.lock();
  }
  // A thread that waits for less than all wanted work of this stream waits a little longer, but is not woken for each piece.
  if (progress == Progress::not_yet || q.done >= q.wanted || stopped_) changed_.notify_all();
}

void Queues::work() {
  const c10::InferenceMode no_autograd;
  Lock lock = lock_machine();
  for (;;) {
    if (stopped_) {
      changed_.wait(lock);
      continue;
    }
    const auto wanted = [&] { return std::any_of(queues_.begin(), queues_.end(), [](auto& q) { return q.done < q.wanted; }); };
    if (!wanted()) {
      if (blocking_ == 0) {
        changed_.wait(lock);
      } else if (!changed_.wait_for(lock, kIdleTime, wanted)) {
        want_blocking();
      }
      continue;
    }
    int stream = draw();
    if (stream < 0) {  // the wanted work waits for another process, which may wait for work that nobody here wants yet
      want_blocking();
      stream = draw();
    }
    if (stream >= 0) {
      do_first(lock, stream);
    } else {
      changed_.wait_for(lock, kPause);
      for (Queue& q : queues_) q.stuck = false;
    }
  }
}

void Queues::stop(Lock& lock) {
  stopped_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kLastWork, [&] { return !running_; });
}

void Queues::start_worker() {
  if (std::exchange(started_, true)) return;
  std::thread([this] { work(); }).detach();
}

void Queues::run(Lock& lock, const std::vector<Mark>& marks) {
  for (const Mark& mark : marks) want(mark);
  const auto all = [&] { return std::all_of(marks.begin(), marks.end(), [&](const Mark& mark) { return done(mark); }); };
  if (all()) return;
  start_worker();
  changed_.notify_all();
  changed_.wait(lock, all);
}

void Queues::run_one(Lock& lock, Mark mark) {
  for (;;) {  // down to work that waits for nothing
    if (done(mark)) return;
    const Queue& q = queue(mark.stream);
    mark.at = q.done + 1;
    const auto& after = q.waiting.front().after;
    const auto open = std::find_if(after.begin(), after.end(), [&](const Mark& m) { return !done(m); });
    if (open == after.end()) break;
    mark = *open;
  }
  const std::uint64_t tries = queue(mark.stream).tries;
  want(mark);
  start_worker();
  changed_.notify_all();
  changed_.wait(lock, [&] { return done(mark) || queue(mark.stream).tries > tries; });
}

void Queues::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

int stream_index(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "sim: ", stream, " is not a stream of the simulated device");
  return std::max<int>(0, stream.device_index()) * kStreamsPerDevice + static_cast<int>(stream.id());
}

std::string stream_name(int index) {
  const int id = index % kStreamsPerDevice;
  const std::string device = index < kStreamsPerDevice ? "" : c10::str(" of sim:", index / kStreamsPerDevice);
  if (id == kRetireStream) return c10::str("the allocator", device);
  return id == 0 ? c10::str("the default stream", device) : c10::str("stream ", id, device);
}

void host_wait(Lock& lock, const char* what, const std::vector<Mark>& marks, const Clock& clock) {
  check_wait(what);
  ++queues().counters.waits;
  queues().run(lock, marks);
  join(queues().host(), clock);
  queues().rethrow();
}

}  // namespace qft::sim

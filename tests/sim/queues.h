// The streams: queues of work, the one thread that executes it, and the host's waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "order.h"
#include "sim.h"
#include <c10/core/Stream.h>

namespace qft::sim {

/// Held for every access to the simulated machine's state; work runs without it.
using Lock = std::unique_lock<std::mutex>;
Lock lock_machine();

/// Streams per device: the default one, two pools as in LibTorch for CUDA, and one that retires memory used by several streams.
inline constexpr int kPoolStreams = 32;
inline constexpr int kRetireStream = 2 * kPoolStreams + 1;
inline constexpr int kStreamsPerDevice = kRetireStream + 1;

int stream_index(const c10::Stream& stream);
std::string stream_name(int index);

/// A position in a stream: after its piece of work number `at`.
struct Mark {
  int stream = 0;
  std::uint64_t at = 0;
};

struct Work {
  std::string name;
  std::function<Progress()> run;  ///< empty: only a wait for `after`
  std::vector<Mark> after;        ///< in other streams
  bool blocking = false;
  bool counted = true;
};

/// Hold the lock for all functions.
class Queues {
 public:
  explicit Queues(std::uint64_t seed) : random_(seed), seeded_(seed != 0) {}

  /// Queues the work and returns its position. Its clock is the stream's, which now includes everything that the host knows.
  Mark push(int stream, Work work);
  Mark last(int stream) { return {stream, queue(stream).pushed}; }
  bool done(Mark mark) { return queue(mark.stream).done >= mark.at; }
  Clock& clock(int stream) { return queue(stream).clock; }
  Clock& host() { return host_; }
  int streams() const { return static_cast<int>(queues_.size()); }

  /// Executes the work up to the marks and its predecessors. Leaves clocks and failures unchanged.
  void run(Lock& lock, const std::vector<Mark>& marks);
  /// Executes one piece of work that precedes `mark`.
  void run_one(Lock& lock, Mark mark);
  /// Rethrows an exception of queued work, once.
  void rethrow();
  bool failed() const { return failure_ != nullptr; }
  /// Starts no more work and waits briefly for the running piece, because the process ends.
  void stop(Lock& lock);

  Counters counters;

 private:
  struct Queue {
    std::deque<Work> waiting;  ///< numbers done + 1 to pushed
    std::uint64_t pushed = 0, done = 0, wanted = 0;
    std::uint64_t tries = 0;  ///< attempts of all work that was not_yet
    bool stuck = false;       ///< its first work was not_yet in this round
    Clock clock;
  };
  Queue& queue(int stream);
  void want(Mark mark);
  bool ready(const Queue& queue);
  void want_blocking();
  int draw();
  void do_first(Lock& lock, int stream);
  [[noreturn]] void work();
  void start_worker();

  std::deque<Queue> queues_;
  Clock host_;
  std::mt19937_64 random_;
  bool seeded_;
  bool started_ = false, stopped_ = false;
  bool running_ = false;  ///< a piece of work runs, without the lock
  int blocking_ = 0;      ///< blocking work in the queues
  std::exception_ptr failure_;
  std::condition_variable changed_;  ///< work is wanted, or was done
};

Queues& queues();

/// Lets the host wait for `mark`, after which it knows `clock`. Throws if waits are refused or the thread is capturing; rethrows
/// exceptions of queued work.
void host_wait(Lock& lock, const char* what, const std::vector<Mark>& marks, const Clock& clock);
/// Throws if host_wait() would throw before waiting.
void check_wait(const char* what);
void refuse_waits(bool refuse);
bool is_refusal(std::string_view what);

}  // namespace qft::sim

// The streams: queues of work, the one thread that does it, and the host's waits for it.
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

/// Streams of a device: the default one, two pools as LibTorch has them for CUDA, and one in which memory that several streams
/// used is retired.
inline constexpr int kPoolStreams = 32;
inline constexpr int kRetireStream = 2 * kPoolStreams + 1;
inline constexpr int kStreamsPerDevice = kRetireStream + 1;

int stream_index(const c10::Stream& stream);
std::string stream_name(int index);

/// A place in a stream: after its piece of work number `at`.
struct Mark {
  int stream = 0;
  std::uint64_t at = 0;
};

struct Work {
  std::string name;
  std::function<Progress()> run;  ///< none: a wait for `after`
  std::vector<Mark> after;        ///< of other streams
  bool blocking = false;
  bool counted = true;
};

/// All functions want the lock held.
class Queues {
 public:
  explicit Queues(std::uint64_t seed) : random_(seed), seeded_(seed != 0) {}

  /// The work's place. Its clock is that of its stream, which knows from now on all that the host knows.
  Mark push(int stream, Work work);
  Mark last(int stream) { return {stream, queue(stream).pushed}; }
  bool done(Mark mark) { return queue(mark.stream).done >= mark.at; }
  Clock& clock(int stream) { return queue(stream).clock; }
  Clock& host() { return host_; }
  int streams() const { return static_cast<int>(queues_.size()); }

  /// Has the work up to the marks done, and what it comes after. Leaves clocks and failures as they are.
  void run(Lock& lock, const std::vector<Mark>& marks);
  /// Has one piece of work done that `mark` comes after.
  void run_one(Lock& lock, Mark mark);
  /// Throws what work threw, once.
  void rethrow();
  bool failed() const { return failure_ != nullptr; }
  /// No more work is begun, and what runs ends, if it does so soon: the process ends.
  void stop(Lock& lock);

  Counters counters;

 private:
  struct Queue {
    std::deque<Work> waiting;  ///< numbers done + 1 to pushed
    std::uint64_t pushed = 0, done = 0, wanted = 0;
    std::uint64_t tries = 0;  ///< of all work that was not_yet
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
  bool running_ = false;  ///< a piece of work, without the lock
  int blocking_ = 0;      ///< blocking work in the queues
  std::exception_ptr failure_;
  std::condition_variable changed_;  ///< work is wanted, or was done
};

Queues& queues();

/// The host waits for `mark`, which means that it knows `clock`. Throws where waits are refused or the thread is capturing, and
/// what work threw.
void host_wait(Lock& lock, const char* what, const std::vector<Mark>& marks, const Clock& clock);
/// Throws where host_wait() would before it waits.
void check_wait(const char* what);
void refuse_waits(bool refuse);
bool is_refusal(std::string_view what);

}  // namespace qft::sim

#include "qft/job/watchdog.h"

#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <sys/prctl.h>
#include <unistd.h>

#include "watchdog_impl.h"

namespace qft::job {
namespace {

using Clock = WatchClock;

constexpr int kEndRepeats = 3;                            // UDP may lose one
constexpr auto kRankZeroFirst = std::chrono::seconds(2);  // rank 0 knows more than the other ranks
constexpr int kReporters = 3;                             // of the other ranks: the first one ends the job
constexpr auto kFailureGrace = std::chrono::seconds(5);   // the rank's main thread may report the failure too, in more detail
constexpr auto kAbortLimit = std::chrono::seconds(1);
constexpr auto kReportInterval =
    std::chrono::seconds(3);                    // until the next rank reports: mpirun takes a second or two to end a job
constexpr auto kGap = std::chrono::seconds(1);  // a watcher that was suspended this long has missed heartbeats

Watchdog* the_watchdog = nullptr;

double seconds_of(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}
double seconds_since(Clock::time_point then) {
  return seconds_of(Clock::now() - then);
}

}  // namespace

void end_process(const std::string& report) {
  std::fputs(report.c_str(), stderr);
  std::fflush(stderr);
  // Abort device groups first: a device that waits for others could block the driver's cleanup of this process.
  auto aborted = std::make_shared<std::promise<void>>();
  std::thread([aborted] {
    comm::abort_device_groups();
    aborted->set_value();
  }).detach();
  aborted->get_future().wait_for(kAbortLimit);
  std::_Exit(kExitFailed);
}

Watchdog::Impl::Impl(comm::Communicator& world, std::string host, const WatchdogOptions& options)
    : timeout_(options.timeout),
      interval_(options.interval),
      stop_stragglers_(options.stop_stragglers),
      rank_(world.rank()),
      size_(world.size()),
      host_(std::move(host)),
      launcher_(std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr ? getppid() : 0) {
  peers_.resize(static_cast<std::size_t>(is_root() ? size_ : 2));
  if (size_ > 1) is_root() ? gather_ranks(world) : find_root(world);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // only the main thread handles signals
  thread_ = start_thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watchdog::Impl::set(const WatchdogOptions& options) {
  timeout_ = options.timeout;
  interval_ = options.interval;
  stop_stragglers_ = options.stop_stragglers;
}

Watchdog::Impl::~Impl() {
  stop_ = true;
  thread_.join();
  for (int i = 0; i < kEndRepeats && size_ > 1; ++i) beat(/*finished=*/true);
}

void Watchdog::Impl::run() {
  prctl(PR_SET_NAME, "qft-watchdog");
  while (!stop_) {
    require_parent();
    if (size_ > 1) beat(false);
    // Short waits, because the destructor waits for the end of one.
    const auto next = Clock::now() + interval_.load();
    while (Clock::now() < next && !stop_) receive_until(std::min(next, Clock::now() + std::chrono::milliseconds(50)));
    const bool was_away = Clock::now() > next + kGap;
    if (!stop_ && size_ > 1 && !was_away) is_root() ? judge() : judge_root();
  }
}

void Watchdog::Impl::require_parent() const {
  if (launcher_ != 0 && getppid() != launcher_) end_process(is_root() ? "error: watchdog: mpirun is gone; the job ends\n" : "");
}

Message Watchdog::Impl::own_message(bool finished) const {
  Message message;
  message.job = job_;
  const activity::State state = activity::state();
  const comm::LastCollective last = comm::last_collective();
  Heartbeat& b = message.beat;
  copy_text(b.host, host_);
  copy_text(b.phase, state.phase);
  copy_text(b.communicator, last.communicator);
  copy_text(b.call, last.call);
  b.number = last.number;
  b.recent = comm::recent_collectives();
  b.devices = comm::device_collectives();
  copy_text(b.failure, comm::device_failure());
  b.ticks = state.ticks;
  b.step = state.step;
  b.busy_seconds = state.busy_seconds;
  b.work = state.work;
  b.rank = rank_;
  b.waiting = state.waiting;
  b.finished = finished;
  return message;
}

void Watchdog::Impl::beat(bool finished) {
  const Message message = own_message(finished);
  hear(message, {});
  if (is_root()) {
    for (std::size_t r = 1; r < peers_.size(); ++r)
      if (peers_[r].heard) socket_.send(peers_[r].address, &message, sizeof message);
  } else {
    for (const sockaddr_in& address : root_at_) socket_.send(address, &message, sizeof message);
  }
}

void Watchdog::Impl::receive_until(Clock::time_point when) {
  Message message;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now());
    if (size_ == 1) return std::this_thread::sleep_for(std::max(left, std::chrono::milliseconds(0)));
    const auto from = socket_.receive(&message, sizeof message, left);
    if (!from) return;
    if (message.job != job_) continue;
    if (message.kind == MessageKind::end) end_process("");
    hear(message, *from);
  }
}

void Watchdog::Impl::hear(const Message& message, const sockaddr_in& from) {
  const int rank = message.beat.rank;
  if (rank < 0 || rank >= size_ || (!is_root() && rank != 0 && rank != rank_)) return;
  Peer& peer = peer_of(rank);
  const bool first = !peer.heard;
  if (first || peer.watched.beat.ticks != message.beat.ticks) peer.last_moved = Clock::now();
  peer.heard = true;
  peer.last_heard = Clock::now();
  peer.address = from;
  peer.watched.beat = message.beat;
  if (!peer.failed && message.beat.failure[0] != '\0') peer.failed = Clock::now();
  if (rank == rank_) return;
  if (!is_root()) {
    root_at_ = {from};
  } else if (first) {
    const Message answer = own_message(false);
    socket_.send(from, &answer, sizeof answer);
  }
}

std::vector<Watched> Watchdog::Impl::watched() const {
  std::vector<Watched> list;
  for (const Peer& peer : peers_) {
    if (!peer.heard) continue;
    list.push_back(peer.watched);
    list.back().silent_seconds = seconds_since(peer.last_heard);
    list.back().idle_seconds = seconds_since(peer.last_moved);
    if (peer.failed) list.back().failed_seconds = seconds_since(*peer.failed);
  }
  return list;
}

void Watchdog::Impl::judge() {
  const auto ranks = watched();
  const double timeout = seconds_of(timeout_.load());
  if (const auto report = diagnose_failure(ranks, seconds_of(kFailureGrace))) end_everywhere(*report);
  if (const auto report = diagnose(ranks, timeout)) end_everywhere(*report);
  if (const auto report = diagnose_mismatch(ranks)) end_everywhere(*report);
  const std::string slow = stragglers_.observe(ranks);
  if (slow.empty()) return;
  if (stop_stragglers_) return activity::request_end(slow);
  log::warn(
      "{}: all ranks wait for it; check what else runs there, its clock rates, memory and disk (straggler_action: stop ends such "
      "a run with a checkpoint)",
      slow);
}

void Watchdog::Impl::end_everywhere(const std::string& report) {
  std::fputs(report.c_str(), stderr);
  std::fflush(stderr);
  Message message = own_message(false);
  message.kind = MessageKind::end;
  for (int i = 0; i < kEndRepeats; ++i) {
    for (std::size_t r = 1; r < peers_.size(); ++r)
      if (peers_[r].heard) socket_.send(peers_[r].address, &message, sizeof message);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  end_process("");
}

// Rank 0 judges the progress of all ranks until it has finished; then each rank judges its own.
void Watchdog::Impl::judge_root() {
  auto ranks = watched();
  if (!peers_.front().heard) return;
  if (!ranks.front().beat.finished) ranks.front().idle_seconds = 0.0;
  if (const auto report = diagnose(ranks, seconds_of(root_timeout(timeout_)))) end_process(*report);
  if (const auto report = diagnose_failure(ranks, seconds_of(root_timeout(kFailureGrace)))) end_process(*report);
}

std::chrono::milliseconds Watchdog::Impl::root_timeout(std::chrono::milliseconds rank_zero_timeout) const {
  return rank_zero_timeout + kRankZeroFirst + kReportInterval * (std::min(rank_, kReporters) - 1);
}

Watchdog::Watchdog(comm::Communicator& world, std::string host, const WatchdogOptions& options)
    : impl_(std::make_unique<Impl>(world, std::move(host), options)) {
  the_watchdog = this;
}
Watchdog::~Watchdog() {
  if (the_watchdog == this) the_watchdog = nullptr;
}

Watchdog& Watchdog::current() {
  QFT_ASSERT(the_watchdog != nullptr, "no Watchdog runs: main() must use run_main()");
  return *the_watchdog;
}

void Watchdog::set(const WatchdogOptions& options) {
  impl_->set(options);
}

}  // namespace qft::job

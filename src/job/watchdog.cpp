#include "qft/job/watchdog.h"

#include "qft/comm/session.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <random>
#include <sstream>
#include <sys/prctl.h>
#include <unistd.h>

#include "watchdog_impl.h"
#include <fmt/format.h>

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

/// MPI tags of rank 0's messages to the other ranks and of their answers.
constexpr int kRootAddressTag = 11, kReachedTag = 12;

/// The addresses of rank 0.
struct RootAddress {
  std::uint64_t job = 0;
  std::array<char, 1024> addresses{};  ///< IPv4, each followed by a blank
  std::uint16_t port = 0;
};

constexpr auto kContactTimeout = std::chrono::seconds(5);  // to reach rank 0 at all
constexpr auto kContactInterval = std::chrono::milliseconds(20);

std::string absence(const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  return fmt::format(
      "error: watchdog: rank{} {} did not come to the start of the job within {:.0f} s (stopped, or the node or its "
      "network is gone); the job ends\n",
      ranks.size() > 1 ? "s" : "", comm::format_ranks(ranks), std::chrono::duration<double>(timeout).count());
}

/// `reached`: per rank, 0 if rank 0 did not answer it.
void warn_of_lost(const std::vector<std::int32_t>& reached, const RootAddress& card) {
  std::vector<int> lost;
  for (std::size_t r = 1; r < reached.size(); ++r)
    if (reached[r] == 0) lost.push_back(static_cast<int>(r));
  if (!lost.empty())
    log::warn("rank{} {} get{} no answer from rank 0 by UDP at {}port {}: nobody watches {}; allow UDP between the nodes",
              lost.size() > 1 ? "s" : "", comm::format_ranks(lost), lost.size() > 1 ? "" : "s", card.addresses.data(), card.port,
              lost.size() > 1 ? "them" : "it");
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

// Uses no collectives: they could not name a rank that does not arrive.
void Watchdog::Impl::gather_ranks(comm::Communicator& world) {
  job_ = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  RootAddress card{job_, {}, socket_.port()};
  std::string addresses;
  for (const std::string& address : own_addresses())
    if (addresses.size() + address.size() + 1 < card.addresses.size()) addresses += address + " ";
  copy_text(card.addresses, addresses);
  std::vector<std::int32_t> reached(peers_.size(), 1);
  std::vector<comm::Work> sends, answers;
  for (int r = 1; r < size_; ++r) {
    sends.push_back(world.start_send(&card, sizeof card, DType::u8, r, kRootAddressTag));
    answers.push_back(world.start_recv(&reached[static_cast<std::size_t>(r)], 1, DType::i32, r, kReachedTag));
  }
  const auto deadline = Clock::now() + timeout_.load();
  for (auto next = Clock::now();;) {
    std::vector<int> missing;
    for (int r = 1; r < size_; ++r)
      if (!answers[static_cast<std::size_t>(r - 1)].test()) missing.push_back(r);
    if (missing.empty()) break;
    if (Clock::now() > deadline) end_everywhere(absence(missing, timeout_));
    if (Clock::now() >= next) {
      beat(false);
      next += kContactInterval;
    }
    receive_until(Clock::now() + std::chrono::milliseconds(1));
  }
  for (comm::Work& send : sends) send.wait();
  warn_of_lost(reached, card);
}

void Watchdog::Impl::find_root(comm::Communicator& world) {
  RootAddress card;
  comm::Work arrival = world.start_recv(&card, sizeof card, DType::u8, 0, kRootAddressTag);
  for (const auto deadline = Clock::now() + root_timeout(timeout_); !arrival.test();) {
    if (Clock::now() > deadline) end_process(absence({0}, timeout_));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  job_ = card.job;
  std::istringstream addresses(card.addresses.data());
  for (std::string address; addresses >> address;) root_at_.push_back(socket_address(address, card.port));
  contact_root();
  const std::int32_t reached = all_heard() ? 1 : 0;
  world.send(&reached, 1, DType::i32, 0, kReachedTag);
}

// Sends to all addresses until one answers.
void Watchdog::Impl::contact_root() {
  for (const auto deadline = Clock::now() + kContactTimeout; !all_heard() && Clock::now() < deadline;) {
    beat(false);
    for (const auto next = Clock::now() + kContactInterval; !all_heard() && Clock::now() < next;)
      receive_until(Clock::now() + std::chrono::milliseconds(1));
  }
}

bool Watchdog::Impl::all_heard() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.heard; });
}

}  // namespace qft::job

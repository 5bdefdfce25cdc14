#include "qft/comm/watchdog.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <unistd.h>

#include "datagrams.h"
#include "diagnosis.h"
#include "qft/comm/session.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"

namespace qft::comm {
namespace {

using Clock = std::chrono::steady_clock;

enum class MessageKind : std::uint32_t { heartbeat, end };

struct Message {
  std::uint64_t job = 0;  ///< the same for all ranks of a job, and another one for each job
  MessageKind kind = MessageKind::heartbeat;
  Heartbeat beat;
};

/// Rank 0's to each of the others, and their answers, by MPI.
constexpr int kCardTag = 11, kReachedTag = 12;

/// Where rank 0 may be reached.
struct Card {
  std::uint64_t job = 0;
  std::array<char, 1024> addresses{};  ///< IPv4, a blank after each
  std::uint16_t port = 0;
};

constexpr int kEndRepeats = 3;                            // UDP may lose one
constexpr auto kHelloPatience = std::chrono::seconds(5);  // to reach rank 0 at all
constexpr auto kRankZeroFirst = std::chrono::seconds(2);  // rank 0 knows more than the others
constexpr auto kHelloEvery = std::chrono::milliseconds(20);
constexpr int kSpeakers = 3;                              // of the others: the first ends the job
constexpr auto kTurn = std::chrono::seconds(3);           // until the next speaks: mpirun takes a second or two to end a job
constexpr auto kGap = std::chrono::seconds(1);            // a watcher that was away for so long heard nobody

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

std::string absence(const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  return fmt::format("error: watchdog: rank{} {} did not come to the start of the job within {:.0f} s (stopped, or the node or its "
                     "network is gone); the job ends\n",
                     ranks.size() > 1 ? "s" : "", format_ranks(ranks), std::chrono::duration<double>(timeout).count());
}

[[noreturn]] void end_process(const std::string& report) {
  std::fputs(report.c_str(), stderr);
  std::fflush(stderr);
  std::_Exit(kExitFailed);
}

}  // namespace

class Watchdog::Impl {
 public:
  Impl(Communicator& world, std::string host, const WatchdogOptions& options);
  ~Impl();
  void set(const WatchdogOptions& options);

 private:
  struct Peer {
    Watched watched;
    sockaddr_in address{};
    bool heard = false;
    Clock::time_point last_heard, last_moved;
  };
  bool is_root() const { return rank_ == 0; }
  void gather_ranks(Communicator& world);
  void find_root(Communicator& world);
  void say_hello();
  void warn_of_lost(const std::vector<std::int32_t>& reached, const Card& card) const;
  std::chrono::milliseconds patience_with_root() const;
  bool all_heard() const;
  void run();
  Message own_message(bool finished) const;
  void beat(bool finished);
  void receive_until(Clock::time_point when);
  void hear(const Message& message, const sockaddr_in& from);
  void judge();
  void judge_root();
  Peer& peer_of(int rank) { return peers_[static_cast<std::size_t>(is_root() ? rank : rank == rank_)]; }
  std::vector<Watched> watched() const;
  void end_everywhere(const std::string& report);
  void require_parent() const;

  std::atomic<std::chrono::milliseconds> timeout_, interval_;
  const int rank_, size_;
  const std::string host_;
  const pid_t launcher_;  ///< 0: not started by mpirun
  std::uint64_t job_ = 0;
  DatagramSocket socket_;
  std::vector<sockaddr_in> root_at_;  ///< where rank 0 may be reached; one entry once it has answered
  std::vector<Peer> peers_;           ///< rank 0: all ranks; others: rank 0 and this one
  StragglerWatch stragglers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Watchdog::Impl::Impl(Communicator& world, std::string host, const WatchdogOptions& options)
    : timeout_(options.timeout),
      interval_(options.interval),
      rank_(world.rank()),
      size_(world.size()),
      host_(std::move(host)),
      launcher_(std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr ? getppid() : 0) {
  peers_.resize(static_cast<std::size_t>(is_root() ? size_ : 2));
  if (size_ > 1) is_root() ? gather_ranks(world) : find_root(world);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the main thread
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watchdog::Impl::set(const WatchdogOptions& options) {
  timeout_ = options.timeout;
  interval_ = options.interval;
}

// Not by collectives: in those a rank that does not come would have no name.
void Watchdog::Impl::gather_ranks(Communicator& world) {
  job_ = (std::uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  Card card{job_, {}, socket_.port()};
  std::string addresses;
  for (const std::string& address : own_addresses())
    if (addresses.size() + address.size() + 1 < card.addresses.size()) addresses += address + " ";
  copy_text(card.addresses, addresses);
  std::vector<std::int32_t> reached(peers_.size(), 1);
  std::vector<Work> sends, answers;
  for (int r = 1; r < size_; ++r) {
    sends.push_back(world.start_send(&card, sizeof card, DType::u8, r, kCardTag));
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
      next += kHelloEvery;
    }
    receive_until(Clock::now() + std::chrono::milliseconds(1));
  }
  for (Work& send : sends) send.wait();
  warn_of_lost(reached, card);
}

void Watchdog::Impl::find_root(Communicator& world) {
  Card card;
  Work arrival = world.start_recv(&card, sizeof card, DType::u8, 0, kCardTag);
  for (const auto deadline = Clock::now() + patience_with_root(); !arrival.test();) {
    if (Clock::now() > deadline) end_process(absence({0}, timeout_));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  job_ = card.job;
  std::istringstream addresses(card.addresses.data());
  for (std::string address; addresses >> address;) root_at_.push_back(socket_address(address, card.port));
  say_hello();
  const std::int32_t reached = all_heard() ? 1 : 0;
  world.send(&reached, 1, DType::i32, 0, kReachedTag);
}

// Tries all addresses until one answers.
void Watchdog::Impl::say_hello() {
  for (const auto deadline = Clock::now() + kHelloPatience; !all_heard() && Clock::now() < deadline;) {
    beat(false);
    for (const auto next = Clock::now() + kHelloEvery; !all_heard() && Clock::now() < next;)
      receive_until(Clock::now() + std::chrono::milliseconds(1));
  }
}

bool Watchdog::Impl::all_heard() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.heard; });
}

void Watchdog::Impl::warn_of_lost(const std::vector<std::int32_t>& reached, const Card& card) const {
  std::vector<int> lost;
  for (int r = 1; r < size_; ++r)
    if (reached[static_cast<std::size_t>(r)] == 0) lost.push_back(r);
  if (!lost.empty())
    log::warn("rank{} {} get{} no answer from rank 0 by UDP at {}port {}: nobody watches {}; allow UDP between the nodes",
              lost.size() > 1 ? "s" : "", format_ranks(lost), lost.size() > 1 ? "" : "s", card.addresses.data(), card.port,
              lost.size() > 1 ? "them" : "it");
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
    // Short naps: the destructor waits for the end of one.
    const auto next = Clock::now() + interval_.load();
    while (Clock::now() < next && !stop_) receive_until(std::min(next, Clock::now() + std::chrono::milliseconds(50)));
    const bool was_away = Clock::now() > next + kGap;
    if (!stop_ && size_ > 1 && !was_away) is_root() ? judge() : judge_root();
  }
}

void Watchdog::Impl::require_parent() const {
  if (launcher_ != 0 && getppid() != launcher_)
    end_process(is_root() ? "error: watchdog: mpirun is gone; the job ends\n" : "");
}

Message Watchdog::Impl::own_message(bool finished) const {
  Message message;
  message.job = job_;
  const activity::State state = activity::state();
  const LastCollective last = last_collective();
  Heartbeat& b = message.beat;
  copy_text(b.host, host_);
  copy_text(b.phase, state.phase);
  copy_text(b.communicator, last.communicator);
  copy_text(b.call, last.call);
  b.number = last.number;
  b.recent = recent_collectives();
  b.ticks = state.ticks;
  b.step = state.step;
  b.busy_seconds = state.busy_seconds;
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
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now());
    if (size_ == 1) return std::this_thread::sleep_for(std::max(patience, std::chrono::milliseconds(0)));
    const auto from = socket_.receive(&message, sizeof message, patience);
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
  }
  return list;
}

void Watchdog::Impl::judge() {
  const auto ranks = watched();
  const double timeout = std::chrono::duration<double>(timeout_.load()).count();
  if (const auto report = diagnose(ranks, timeout)) end_everywhere(*report);
  if (const std::string slow = stragglers_.observe(ranks); !slow.empty()) activity::request_end(slow);
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
  std::_Exit(kExitFailed);
}

// Rank 0 judges the progress of all, until it has finished: then each rank judges its own.
void Watchdog::Impl::judge_root() {
  auto ranks = watched();
  if (!peers_.front().heard) return;
  if (!ranks.front().beat.finished) ranks.front().idle_seconds = 0.0;
  const double patience = std::chrono::duration<double>(patience_with_root()).count();
  if (const auto report = diagnose(ranks, patience)) end_process(*report);
}

std::chrono::milliseconds Watchdog::Impl::patience_with_root() const {
  return timeout_.load() + kRankZeroFirst + kTurn * (std::min(rank_, kSpeakers) - 1);
}

Watchdog::Watchdog(Communicator& world, std::string host, const WatchdogOptions& options)
    : impl_(std::make_unique<Impl>(world, std::move(host), options)) {}
Watchdog::~Watchdog() = default;
void Watchdog::set(const WatchdogOptions& options) { impl_->set(options); }

}  // namespace qft::comm

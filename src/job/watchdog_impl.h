// What a watchdog holds: watchdog.cpp has its thread, watchdog_start.cpp how the ranks come together.
#pragma once

#include "qft/job/watchdog.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "datagrams.h"
#include "diagnosis.h"

namespace qft::job {

using WatchClock = std::chrono::steady_clock;

enum class MessageKind : std::uint32_t { heartbeat, end };

struct Message {
  std::uint64_t job = 0;  ///< the same for all ranks of a job, and another one for each job
  MessageKind kind = MessageKind::heartbeat;
  Heartbeat beat;
};

/// What a datagram carries in one piece over Ethernet.
static_assert(sizeof(Message) <= 1472);

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

/// Ends this process with exit code 1 and `report` on stderr.
[[noreturn]] void end_process(const std::string& report);

class Watchdog::Impl {
 public:
  Impl(comm::Communicator& world, std::string host, const WatchdogOptions& options);
  ~Impl();
  void set(const WatchdogOptions& options);

 private:
  struct Peer {
    Watched watched;
    sockaddr_in address{};
    bool heard = false;
    WatchClock::time_point last_heard, last_moved;
    std::optional<WatchClock::time_point> failed;  ///< first told of
  };
  bool is_root() const { return rank_ == 0; }
  void gather_ranks(comm::Communicator& world);
  void find_root(comm::Communicator& world);
  void say_hello();
  std::chrono::milliseconds patience_with_root(std::chrono::milliseconds of_root) const;
  bool all_heard() const;
  void run();
  Message own_message(bool finished) const;
  void beat(bool finished);
  void receive_until(WatchClock::time_point when);
  void hear(const Message& message, const sockaddr_in& from);
  void judge();
  void judge_root();
  Peer& peer_of(int rank) { return peers_[static_cast<std::size_t>(is_root() ? rank : rank == rank_)]; }
  std::vector<Watched> watched() const;
  void end_everywhere(const std::string& report);
  void require_parent() const;

  std::atomic<std::chrono::milliseconds> timeout_, interval_;
  std::atomic<bool> stop_stragglers_;
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

}  // namespace qft::job

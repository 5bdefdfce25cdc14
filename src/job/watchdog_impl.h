// The state of a watchdog. Private to job.
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
  std::uint64_t job = 0;  ///< the same on all ranks of a job; differs between jobs
  MessageKind kind = MessageKind::heartbeat;
  Heartbeat beat;
};

/// Fits into one Ethernet packet.
static_assert(sizeof(Message) <= 1472);

template <std::size_t N>
void copy_text(std::array<char, N>& to, const std::string& from) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

/// Prints `report` to stderr and ends this process with exit code 1.
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
    std::optional<WatchClock::time_point> failed;  ///< when it first reported a failure
  };
  bool is_root() const { return rank_ == 0; }
  void gather_ranks(comm::Communicator& world);
  void find_root(comm::Communicator& world);
  void contact_root();
  std::chrono::milliseconds root_timeout(std::chrono::milliseconds rank_zero_timeout) const;
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
  std::vector<sockaddr_in> root_at_;  ///< possible addresses of rank 0; one once it has answered
  std::vector<Peer> peers_;           ///< on rank 0 all ranks; elsewhere rank 0 and this rank
  StragglerWatch stragglers_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace qft::job

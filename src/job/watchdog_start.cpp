#include "qft/comm/session.h"
#include "qft/core/log.h"

#include <random>
#include <sstream>

#include "watchdog_impl.h"
#include <fmt/format.h>

namespace qft::job {
namespace {

using Clock = WatchClock;

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

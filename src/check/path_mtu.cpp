// Checks that packets of an interface's full MTU arrive. A switch that drops them lets small messages through and hangs on large
// ones. Runs before MPI sends more than a few bytes.
#include "qft/comm/exchange.h"
#include "qft/comm/mpi_setting.h"

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "interfaces.h"
#include "probe.h"

namespace qft::check {
namespace {

constexpr int kHeaders = 28;  // of IPv4 and UDP
constexpr int kSmall = 64;
constexpr int kTries = 3;
constexpr int kPatience = 300;  // milliseconds to wait for sent packets

/// A node's address for the other nodes. Only a few bytes, because more may not arrive.
struct End {
  std::uint32_t address = 0;  ///< 0: none
  std::uint16_t port = 0;
  std::uint16_t mtu = 0;
};
static_assert(sizeof(End) == 8);

class Socket {
 public:
  Socket() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const int whole = IP_PMTUDISC_PROBE;  // never fragmented, whatever the kernel has learnt about the path
    setsockopt(fd_, IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t size = sizeof any;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&any), size) == 0 &&
        getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &size) == 0)
      port_ = any.sin_port;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  std::uint16_t port() const { return port_; }
  void send(const End& to, int bytes) const {
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_addr.s_addr = to.address;
    target.sin_port = to.port;
    const std::vector<char> text(static_cast<std::size_t>(bytes), 'q');
    sendto(fd_, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&target), sizeof target);
  }
  /// Waits until a packet of `largest` bytes has arrived, or for kPatience. Returns whether a small and a full packet arrived.
  std::pair<bool, bool> receive(int largest) const {
    bool small = false, whole = false;
    std::vector<char> room(std::size_t{1} << 16);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    while (!(small && whole)) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
      pollfd ready{fd_, POLLIN, 0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) break;
      const ssize_t got = recv(fd_, room.data(), room.size(), 0);
      small = small || got == kSmall;
      whole = whole || got == largest;
    }
    return {small, whole};
  }

 private:
  int fd_;
  std::uint16_t port_ = 0;
};

End end_here(const Socket& socket) {
  const auto fit = candidates(interfaces(), comm::mpi_setting("btl_tcp_if_include"), comm::mpi_setting("btl_tcp_if_exclude"));
  End end;
  if (fit.empty()) return end;
  inet_pton(AF_INET, fit.front().address.c_str(), &end.address);
  end.port = socket.port();
  end.mtu = static_cast<std::uint16_t>(std::min(fit.front().mtu, 65535));
  return end;
}

}  // namespace

Json gather_path_mtu(Context& context) {
  comm::Session& session = context.session;
  if (session.node_count() == 1) return Json::object();
  const Socket socket;
  const bool leads = session.local_rank() == 0;
  const End mine = leads ? end_here(socket) : End{};
  std::vector<End> ends(static_cast<std::size_t>(session.size()));
  session.world().host().all_gather(&mine, ends.data(), sizeof mine, DType::u8);
  const auto leaders_flags = comm::all_gather_value(session.world(), leads ? 1 : 0);
  std::vector<End> ring;
  std::size_t place = 0;
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (static_cast<int>(r) == session.rank()) place = ring.size();
    if (leaders_flags[r] == 1) ring.push_back(ends[r]);
  }
  if (!leads) return Json::object();
  const End &next = ring[(place + 1) % ring.size()], &before = ring[(place + ring.size() - 1) % ring.size()];
  if (mine.address == 0 || next.address == 0 || before.address == 0) return Json::object();
  for (int i = 0; i < kTries; ++i) {
    socket.send(next, kSmall);
    socket.send(next, mine.mtu - kHeaders);
  }
  const auto [small, whole] = socket.receive(before.mtu - kHeaders);
  return {{"mtu", before.mtu}, {"small", small}, {"whole", whole}};
}

void judge_path_mtu(const Facts& facts, Judgement& out) {
  if (facts.nodes() == 1) return;
  std::vector<int> cut, silent;
  const auto leaders = facts.leaders();
  for (const int rank : leaders) {
    const Json& mine = facts.of[static_cast<std::size_t>(rank)];
    if (mine.empty() || !mine.at("small").get<bool>())
      silent.push_back(rank);
    else if (!mine.at("whole").get<bool>())
      cut.push_back(rank);
  }
  for (const int rank : cut) {
    const auto at = static_cast<std::size_t>(std::find(leaders.begin(), leaders.end(), rank) - leaders.begin());
    const int from = leaders[(at + leaders.size() - 1) % leaders.size()];
    out.fail(
        fmt::format("packets of {} bytes, the MTU on {}, do not arrive on {}, but small ones do: large messages hang or crawl",
                    facts.at(rank, "mtu").get<int>(), facts.places[static_cast<std::size_t>(from)].host,
                    facts.places[static_cast<std::size_t>(rank)].host));
  }
  if (!silent.empty() && cut.empty())
    out.fine(fmt::format("unknown: no UDP packet reached {} (a firewall, or no IPv4)", facts.where(silent)));
  else if (cut.empty())
    out.fine("packets of full size arrive on every node");
}

}  // namespace qft::check

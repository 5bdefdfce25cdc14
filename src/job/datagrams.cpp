#include "datagrams.h"

#include "qft/core/error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace qft::job {

DatagramSocket::DatagramSocket() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  require(fd_ >= 0, "no UDP socket for the watchdog: {}", std::strerror(errno));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof any;
  const bool bound = ::bind(fd_, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
                     ::getsockname(fd_, reinterpret_cast<sockaddr*>(&any), &length) == 0;
  if (!bound) {
    const std::string why = std::strerror(errno);
    ::close(fd_);
    fail("no UDP port for the watchdog: {}", why);
  }
  port_ = ntohs(any.sin_port);
}

DatagramSocket::~DatagramSocket() {
  ::close(fd_);
}

void DatagramSocket::send(const sockaddr_in& to, const void* data, std::size_t bytes) const {
  static_cast<void>(::sendto(fd_, data, bytes, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to));
}

std::optional<sockaddr_in> DatagramSocket::receive(void* data, std::size_t bytes, std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd wait = {fd_, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(0, left.count()))) <= 0) return std::nullopt;
    std::array<char, 2048> buffer;
    sockaddr_in from = {};
    socklen_t length = sizeof from;
    const ssize_t got = ::recvfrom(fd_, buffer.data(), buffer.size(), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (got != static_cast<ssize_t>(bytes)) continue;
    std::memcpy(data, buffer.data(), bytes);
    return from;
  }
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {"127.0.0.1"};
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0 ||
        (i->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
    if (::inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) found.emplace_back(text.data());
  }
  ::freeifaddrs(list);
  found.emplace_back("127.0.0.1");
  return found;
}

sockaddr_in socket_address(const std::string& address, std::uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  require(::inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1, "'{}' is not an IPv4 address", address);
  return result;
}

}  // namespace qft::job

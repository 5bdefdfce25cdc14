// A UDP socket for small messages between the processes of a job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <vector>

namespace qft::job {

/// IPv4. Sending never blocks and may lose a message; a failed send counts as a loss.
class DatagramSocket {
 public:
  /// Binds a free port on all interfaces. Throws Error if the system has none.
  DatagramSocket();
  ~DatagramSocket();
  DatagramSocket(const DatagramSocket&) = delete;
  DatagramSocket& operator=(const DatagramSocket&) = delete;

  std::uint16_t port() const { return port_; }
  void send(const sockaddr_in& to, const void* data, std::size_t bytes) const;
  /// Receives the next message into data[bytes] and returns its sender; nullopt after `timeout`. Drops messages of another size.
  std::optional<sockaddr_in> receive(void* data, std::size_t bytes, std::chrono::milliseconds timeout) const;

 private:
  int fd_ = -1;
  std::uint16_t port_ = 0;
};

/// Returns the IPv4 addresses of this machine's active interfaces, "127.0.0.1" last.
std::vector<std::string> own_addresses();
sockaddr_in socket_address(const std::string& address, std::uint16_t port);

}  // namespace qft::job

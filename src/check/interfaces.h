// The network of this node: interfaces, addresses, counters, RDMA ports. Private to check.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::check {

struct Interface {
  std::string name;
  bool up = false;  ///< and its cable carries a signal
  bool loopback = false;
  int mtu = 0;
  std::int64_t megabits = 0;    ///< a second, as negotiated; 0: unknown
  std::string address;          ///< IPv4, the first one; empty: none
  int prefix = 0;               ///< bits of its network
  std::string network() const;  ///< "10.9.0.0/24"
};
/// Those of this process' network namespace.
std::vector<Interface> interfaces();
nlohmann::json to_json(const Interface& interface);
Interface interface_of(const nlohmann::json& json);

/// Whether one of Open MPI's words (a name, or a network such as 10.9.0.0/24), separated by commas, is this interface.
bool is_named(const Interface& interface, std::string_view words);
/// Those by which Open MPI's TCP may reach other nodes: up, with an address, among `include` or, where that is empty, not among
/// `exclude`.
std::vector<Interface> candidates(const std::vector<Interface>& all, const std::string& include, const std::string& exclude);
/// Those that NCCL's sockets may take by NCCL_SOCKET_IFNAME: prefixes, "=" for whole names, "^" for all but these.
std::vector<Interface> nccl_candidates(const std::vector<Interface>& all, const std::string& wish);

/// Bytes sent by each interface so far.
std::map<std::string, std::int64_t> sent_bytes(const std::filesystem::path& root);

struct RdmaPort {
  std::string name;   ///< "mlx5_0:1"
  std::string state;  ///< "ACTIVE", "DOWN", "INIT"
  double gigabits = 0;
  std::string layer;      ///< "InfiniBand", "Ethernet"
  std::int64_t sent = 0;  ///< bytes so far
};
std::vector<RdmaPort> rdma_ports(const std::filesystem::path& root);
/// Whether a port is active, and programs have a device to use it by.
bool can_use_rdma(const std::filesystem::path& root);

}  // namespace qft::check

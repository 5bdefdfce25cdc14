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

/// A network interface.
struct Interface {
  std::string name;
  bool up = false;  ///< up, and its cable carries a signal
  bool loopback = false;
  int mtu = 0;
  std::int64_t megabits = 0;    ///< negotiated Mbit/s; 0: unknown
  std::string address;          ///< first IPv4 address; empty: none
  int prefix = 0;               ///< length of its network prefix in bits
  std::string network() const;  ///< "10.9.0.0/24"
};
/// Returns the interfaces of this process' network namespace.
std::vector<Interface> interfaces();
nlohmann::json to_json(const Interface& interface);
Interface interface_of(const nlohmann::json& json);

/// True if one of Open MPI's comma-separated words (a name, or a network such as 10.9.0.0/24) means this interface.
bool is_named(const Interface& interface, std::string_view words);
/// Returns the interfaces that Open MPI's TCP may use between nodes: up, with an address, and in `include` or, if `include` is
/// empty, not in `exclude`.
std::vector<Interface> candidates(const std::vector<Interface>& all, const std::string& include, const std::string& exclude);
/// Returns the interfaces that NCCL's sockets may use with NCCL_SOCKET_IFNAME: prefixes, "=" for whole names, "^" for all others.
std::vector<Interface> nccl_candidates(const std::vector<Interface>& all, const std::string& wish);

/// Returns the bytes that each interface has sent so far.
std::map<std::string, std::int64_t> sent_bytes(const std::filesystem::path& root);

/// A port of an RDMA card.
struct RdmaPort {
  std::string name;   ///< "mlx5_0:1"
  std::string state;  ///< "ACTIVE", "DOWN", "INIT"
  double gigabits = 0;
  std::string layer;      ///< "InfiniBand", "Ethernet"
  std::int64_t sent = 0;  ///< bytes so far
};
std::vector<RdmaPort> rdma_ports(const std::filesystem::path& root);
/// True if a port is active and programs have a device file for it.
bool can_use_rdma(const std::filesystem::path& root);

}  // namespace qft::check

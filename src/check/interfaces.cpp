#include "interfaces.h"

#include <algorithm>
#include <arpa/inet.h>
#include <bit>
#include <cstring>
#include <fstream>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sstream>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace qft::check {
namespace {

namespace fs = std::filesystem;

/// Asks the kernel about an interface. Uses ioctl, because /sys shows the interfaces of the namespace that mounted it.
class InterfaceQuery {
 public:
  InterfaceQuery() : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}
  ~InterfaceQuery() {
    if (socket_ >= 0) close(socket_);
  }
  InterfaceQuery(const InterfaceQuery&) = delete;
  InterfaceQuery& operator=(const InterfaceQuery&) = delete;

  int mtu(const std::string& name) const {
    ifreq request = request_of(name);
    return ioctl(socket_, SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
  }
  std::int64_t megabits(const std::string& name) const {
    ethtool_cmd command{};
    command.cmd = ETHTOOL_GSET;
    ifreq request = request_of(name);
    request.ifr_data = reinterpret_cast<char*>(&command);
    if (ioctl(socket_, SIOCETHTOOL, &request) != 0) return 0;
    const std::uint32_t speed = ethtool_cmd_speed(&command);
    return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) || speed == 0xFFFF ? 0 : speed;
  }

 private:
  static ifreq request_of(const std::string& name) {
    ifreq request{};
    std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
    return request;
  }
  int socket_;
};

std::uint32_t number_of(const std::string& address) {
  in_addr number{};
  inet_pton(AF_INET, address.c_str(), &number);
  return ntohl(number.s_addr);
}
std::uint32_t mask_of(int prefix) {
  return prefix == 0 ? 0 : ~std::uint32_t{0} << (32 - prefix);
}

std::vector<std::string> split(std::string_view words) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(words)};
  for (std::string part; std::getline(in, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string first_line(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  return line;
}

}  // namespace

std::string Interface::network() const {
  in_addr number{htonl(number_of(address) & mask_of(prefix))};
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &number, text, sizeof text);
  return fmt::format("{}/{}", text, prefix);
}

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const InterfaceQuery query;
  std::vector<Interface> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    auto found = std::find_if(all.begin(), all.end(), [&](const Interface& i) { return i.name == entry->ifa_name; });
    if (found == all.end()) {
      found = all.insert(all.end(), Interface());
      found->name = entry->ifa_name;
      found->up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
      found->loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      found->mtu = query.mtu(found->name);
      found->megabits = query.megabits(found->name);
    }
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || !found->address.empty()) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof text);
    found->address = text;
    if (entry->ifa_netmask != nullptr)
      found->prefix = std::popcount(ntohl(reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr));
  }
  freeifaddrs(list);
  return all;
}

nlohmann::json to_json(const Interface& i) {
  return {{"name", i.name},         {"up", i.up},           {"loopback", i.loopback}, {"mtu", i.mtu},
          {"megabits", i.megabits}, {"address", i.address}, {"prefix", i.prefix}};
}

Interface interface_of(const nlohmann::json& json) {
  return {json.at("name"),     json.at("up"),      json.at("loopback"), json.at("mtu"),
          json.at("megabits"), json.at("address"), json.at("prefix")};
}

bool is_named(const Interface& interface, std::string_view words) {
  for (const std::string& word : split(words)) {
    const auto slash = word.find('/');
    if (slash == std::string::npos) {
      if (word == interface.name) return true;
      continue;
    }
    const std::uint32_t mask = mask_of(std::clamp(std::atoi(word.c_str() + slash + 1), 0, 32));
    const bool same = (number_of(interface.address) & mask) == (number_of(word.substr(0, slash)) & mask);
    if (!interface.address.empty() && same) return true;
  }
  return false;
}

std::vector<Interface> candidates(const std::vector<Interface>& all, const std::string& include, const std::string& exclude) {
  std::vector<Interface> fit;
  for (const Interface& i : all) {
    const bool allowed = include.empty() ? !i.loopback && !is_named(i, exclude) : is_named(i, include);
    if (i.up && !i.address.empty() && allowed) fit.push_back(i);
  }
  return fit;
}

std::vector<Interface> nccl_candidates(const std::vector<Interface>& all, const std::string& wish) {
  const bool except = wish.starts_with('^');
  const bool whole = wish.find('=') < 2;
  const auto words = split(std::string_view(wish).substr((except ? 1U : 0U) + (whole ? 1U : 0U)));
  std::vector<Interface> fit;
  for (const Interface& i : all) {
    const bool named = std::any_of(words.begin(), words.end(),
                                   [&](const std::string& w) { return whole ? i.name == w : i.name.starts_with(w); });
    const bool usual = !i.loopback && !i.name.starts_with("docker");
    if (i.up && !i.address.empty() && (words.empty() ? usual : named != except)) fit.push_back(i);
  }
  return fit;
}

std::map<std::string, std::int64_t> sent_bytes(const fs::path& root) {
  // NAME: bytes packets ... (8 columns received), bytes packets ... (sent)
  std::ifstream in(root / "proc/net/dev");
  std::map<std::string, std::int64_t> sent;
  for (std::string line; std::getline(in, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream name(line.substr(0, colon)), numbers(line.substr(colon + 1));
    std::string word;
    name >> word;
    std::int64_t value = 0;
    for (int column = 0; column <= 8; ++column) numbers >> value;
    sent[word] = value;
  }
  return sent;
}

std::vector<RdmaPort> rdma_ports(const fs::path& root) {
  std::vector<RdmaPort> ports;
  std::error_code error;
  for (const auto& card : fs::directory_iterator(root / "sys/class/infiniband", error))
    for (const auto& port : fs::directory_iterator(card.path() / "ports", error)) {
      const std::string state = first_line(port.path() / "state");  // "4: ACTIVE"
      const auto space = state.find(' ');
      RdmaPort p;
      p.name = fmt::format("{}:{}", card.path().filename().string(), port.path().filename().string());
      p.state = space == std::string::npos ? state : state.substr(space + 1);
      p.gigabits = std::atof(first_line(port.path() / "rate").c_str());  // "200 Gb/sec (4X HDR)"
      p.layer = first_line(port.path() / "link_layer");
      p.sent = 4 * std::atoll(first_line(port.path() / "counters/port_xmit_data").c_str());  // in units of 4 bytes
      ports.push_back(std::move(p));
    }
  std::sort(ports.begin(), ports.end(), [](const RdmaPort& a, const RdmaPort& b) { return a.name < b.name; });
  return ports;
}

bool can_use_rdma(const fs::path& root) {
  const auto ports = rdma_ports(root);
  if (std::none_of(ports.begin(), ports.end(), [](const RdmaPort& p) { return p.state == "ACTIVE"; })) return false;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root / "dev/infiniband", error))
    if (device.path().filename().string().starts_with("uverbs")) return true;
  return false;
}

}  // namespace qft::check

#include "qft/net/url.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace qft::net {
namespace {

/// Begin and end of user, host and port.
struct Authority {
  std::size_t begin, end;
};

/// True if the text after the last colon cannot be a port.
bool has_wrong_port(std::string_view authority) {
  const std::size_t colon = authority.rfind(':');
  if (colon == authority.npos || authority.find('@') != authority.npos || authority.ends_with(']')) return false;
  return authority.find_first_not_of("0123456789", colon + 1) != authority.npos;
}

Authority authority_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  const std::size_t begin = scheme == url.npos ? 0 : scheme + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", begin), url.size());
  if (!has_wrong_port(url.substr(begin, end - begin))) return {begin, end};
  // "me:pa/ss@host": a password without percent-encoding.
  const std::size_t at = url.rfind('@');
  return {begin, at == url.npos || at < end ? end : std::min(url.find_first_of("/?#", at), url.size())};
}

}  // namespace

std::string host_of(std::string_view url) {
  const auto [begin, end] = authority_of(url);
  const std::string_view authority = url.substr(begin, end - begin);
  const std::size_t at = authority.rfind('@');
  return std::string(at == authority.npos ? authority : authority.substr(at + 1));
}

std::string site_of(std::string_view url) {
  std::string site = fmt::format("{}{}", url.substr(0, authority_of(url).begin), host_of(url));
  std::ranges::transform(site, site.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return site;
}

std::string without_secrets(std::string_view url) {
  const auto [begin, end] = authority_of(url);
  const std::string_view path = url.substr(end, url.find_first_of("?#", end) - end);
  return fmt::format("{}{}{}", url.substr(0, begin), host_of(url), path);
}

std::string percent_encoded(std::string_view text, std::string_view keep) {
  static constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string out;
  for (const char c : text) {
    if (kPlain.find(c) != kPlain.npos || keep.find(c) != keep.npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string join(std::string_view base, std::string_view path) {
  while (base.ends_with('/')) base.remove_suffix(1);
  while (path.starts_with('/')) path.remove_prefix(1);
  return fmt::format("{}/{}", base, path);
}

}  // namespace qft::net

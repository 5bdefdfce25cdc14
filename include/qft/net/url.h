// Splits, encodes and displays addresses.
#pragma once

#include <string>
#include <string_view>

namespace qft::net {

/// Returns the address without user, password and query (which may be signed), for messages, logs and reports.
std::string without_secrets(std::string_view url);

/// Returns "host:port" or "host" of an address; empty if it has no host.
std::string host_of(std::string_view url);

/// Returns "https://host:port" of an address in lower case. Addresses with equal sites may receive the same secrets.
std::string site_of(std::string_view url);

/// Encodes all characters except letters, digits, "-._~" and the characters in `keep` as %XX.
std::string percent_encoded(std::string_view text, std::string_view keep = "");

/// Joins a base address and a path with one slash.
std::string join(std::string_view base, std::string_view path);

}  // namespace qft::net

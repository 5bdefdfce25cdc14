// Addresses: their parts, and how they are shown.
#pragma once

#include <string>
#include <string_view>

namespace qft::net {

/// The address without user, password, and query (which may be signed): for messages, logs and reports.
std::string without_secrets(std::string_view url);

/// "host:port" of an address, or "host"; empty where it has none.
std::string host_of(std::string_view url);

/// "https://host:port" of an address, in lower case: who shares it may see the same secrets.
std::string site_of(std::string_view url);

/// `text` with all but letters, digits and "-._~" as %XX; `keep`: characters that stay besides.
std::string percent_encoded(std::string_view text, std::string_view keep = "");

/// A base address and a path, with one slash between them.
std::string join(std::string_view base, std::string_view path);

}  // namespace qft::net

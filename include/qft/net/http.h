// An HTTP client for hubs and trackers. Uses libcurl, loaded for the first client.
#pragma once

#include "qft/core/error.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::net {

/// No answer, or an incomplete one: no route, unknown host, timeout. Another attempt may succeed.
class NetworkError : public Error {
 public:
  using Error::Error;
};

/// The server sends a file only from its beginning, or from a byte that was not requested. No bytes were taken.
class NoRangeError : public NetworkError {
 public:
  using NetworkError::NetworkError;
};

struct Header {
  std::string name, value;
  bool secret = false;  ///< in a request: send it only to the host of `url`, like the token
};

struct Request {
  std::string method = "GET";
  std::string url;  ///< http or https
  std::vector<Header> headers;
  std::string token;  ///< bearer token, sent to the host of `url` but not to redirect targets; empty: none
  std::string body;
  std::int64_t first_byte = 0;  ///< 0: the whole file; else the answer must be 206 (NoRangeError if it is 200)
  bool follow_redirects = true;
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds stall_timeout{30'000};  ///< ends the transfer after this time at less than 1 kB/s
  /// Takes the body of a 2xx answer as it arrives; false ends the transfer. Without it the body goes to Response::body.
  std::function<bool(std::string_view)> sink;
  /// Polled about once a second; false ends the transfer.
  std::function<bool()> keep_going;
};

struct Response {
  int status = 0;
  std::string url;              ///< address of the answer, after redirects
  std::vector<Header> headers;  ///< of the last answer; names in lower case
  std::string body;             ///< without a sink; at most 64 MiB
  bool ok() const { return status >= 200 && status < 300; }
  /// Returns a header's value; empty if it is absent.
  std::string_view header(std::string_view name) const;
};

/// Keeps connections to one or more hosts open for the next request. Use it from one thread at a time.
class Client {
 public:
  /// Throws Error if there is no libcurl.
  Client();
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// Takes proxies (https_proxy, no_proxy ...) and certificates (CURL_CA_BUNDLE, REQUESTS_CA_BUNDLE, SSL_CERT_FILE) from the
  /// environment. Returns an answer with any status. Throws NetworkError if there is no answer, also if `sink` or `keep_going`
  /// ended the transfer. Redirects to another site get no secrets, and messages never show one.
  Response send(const Request& request);

 private:
  Response send_once(const Request& request);
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace qft::net

// HTTP as hubs and trackers are asked: by libcurl, which is loaded when the first request is sent.
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

/// There was no answer, or it broke off: no route, an unknown name, a timeout. The next try may have more luck.
class NetworkError : public Error {
 public:
  using Error::Error;
};

/// The server sends a file from its beginning only, or from another byte than was asked for: nothing of it was taken.
class NoRangeError : public NetworkError {
 public:
  using NetworkError::NetworkError;
};

struct Header {
  std::string name, value;
  bool secret = false;  ///< of a request: for the host of its `url` alone, like the token
};

struct Request {
  std::string method = "GET";
  std::string url;  ///< http or https
  std::vector<Header> headers;
  std::string token;  ///< sent as a bearer's to the host of `url`, to none that it redirects to; empty: none
  std::string body;
  std::int64_t first_byte = 0;  ///< 0: everything; else the answer to be is 206 (NoRangeError where it is 200)
  bool follow_redirects = true;
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds stall_timeout{30'000};  ///< at less than 1 kB/s for so long, the transfer ends
  /// Takes the body of an answer 2xx as it comes; false ends the transfer. Without: Response::body.
  std::function<bool(std::string_view)> sink;
  /// Asked about once a second; false ends the transfer.
  std::function<bool()> go_on;
};

struct Response {
  int status = 0;
  std::string url;              ///< of the answer, after redirects
  std::vector<Header> headers;  ///< of the last answer; names in lower case
  std::string body;             ///< where no sink took it; at most 64 MiB
  bool ok() const { return status >= 200 && status < 300; }
  /// The value of a header; empty where it is not there.
  std::string_view header(std::string_view name) const;
};

/// Connections to one or more hosts, kept for the next request. One thread at a time.
class Client {
 public:
  /// Throws Error where there is no libcurl.
  Client();
  ~Client();
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;

  /// Proxies are those of the environment (https_proxy, no_proxy ...), and so are certificates (CURL_CA_BUNDLE,
  /// REQUESTS_CA_BUNDLE, SSL_CERT_FILE). Throws NetworkError where no answer came, also where `sink` or `go_on` ended it;
  /// any status is an answer. Where redirects are followed, a host that was not asked gets no secret. No message shows one.
  Response send(const Request& request);

 private:
  Response send_once(const Request& request);
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace qft::net

// When a request that failed is sent again, and when that is enough.
#pragma once

#include "qft/net/http.h"

#include <chrono>
#include <ctime>
#include <functional>
#include <random>
#include <string>

namespace qft::hub {

/// How long a hub that answered once is waited for.
struct Trying {
  std::chrono::seconds patience{600};  ///< that it brings nothing
  std::function<bool()> go_on = {};    ///< asked often; false ends it. Empty: never
  bool goes_on() const { return !go_on || go_on(); }
};

/// Too many requests, or a server that cannot answer now.
bool is_busy(int status);

/// What an answer asks to wait: Retry-After in seconds or as a date, or Hugging Face's "RateLimit: ...;t=55". 0: nothing.
std::chrono::seconds asked_wait(const net::Response& response, std::time_t now);

/// The waits between the tries of one request: longer and longer, each a bit of chance, so that many do not come back at once.
class Patience {
 public:
  /// `say` is called where people would wonder what is waited for.
  Patience(Trying trying, std::function<void(const std::string&)> say);
  /// Waits before the next try after `fault`, at least as long as the answer `asked`. False: no more tries, because they took as
  /// long as there is patience, or go_on says so.
  bool wait(const std::string& fault, std::chrono::seconds asked = {});
  /// Something came.
  void reset() { tries_ = 0, waited_ = {}; }

 private:
  using Milliseconds = std::chrono::milliseconds;
  Trying trying_;
  std::function<void(const std::string&)> say_;
  int tries_ = 0;
  Milliseconds waited_{};
  std::minstd_rand chance_{std::random_device{}()};
};

}  // namespace qft::hub

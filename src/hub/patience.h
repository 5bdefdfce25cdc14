// Decides when to retry a failed request, and when to stop.
#pragma once

#include "qft/net/http.h"

#include <chrono>
#include <ctime>
#include <functional>
#include <random>
#include <string>

namespace qft::hub {

/// How long to wait for a hub that answered once.
struct RetryPolicy {
  std::chrono::seconds patience{600};     ///< longest time without progress
  std::function<bool()> keep_going = {};  ///< polled often; false stops the wait. Empty: never stops it
  bool may_continue() const { return !keep_going || keep_going(); }
};

/// True for too many requests, or a server that cannot answer now.
bool is_busy(int status);

/// Returns the wait that an answer asks for: Retry-After in seconds or as a date, or Hugging Face's "RateLimit: ...;t=55". 0:
/// none.
std::chrono::seconds asked_wait(const net::Response& response, std::time_t now);

/// Waits between the attempts of one request: each wait is longer, plus a random part, so that many clients do not return at
/// once.
class RetryTimer {
 public:
  /// `say` receives a message before a wait long enough to be noticed.
  RetryTimer(RetryPolicy trying, std::function<void(const std::string&)> say);
  /// Waits before the next attempt after `fault`, at least the time `asked` by the server. Returns false if there should be no
  /// more attempts: they reached the longest wait, or keep_going returned false.
  bool wait(const std::string& fault, std::chrono::seconds asked = {});
  /// Call after progress.
  void reset() { tries_ = 0, waited_ = {}; }

 private:
  using Milliseconds = std::chrono::milliseconds;
  RetryPolicy retry_;
  std::function<void(const std::string&)> say_;
  int tries_ = 0;
  Milliseconds waited_{};
  std::minstd_rand chance_{std::random_device{}()};
};

}  // namespace qft::hub

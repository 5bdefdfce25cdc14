#include "patience.h"

#include "qft/core/activity.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <thread>
#include <utility>

namespace qft::hub {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::chrono::milliseconds kFirstWait{500}, kLongestWait{60'000}, kWorthSaying{2'000};

/// Returns the whole number that the text begins with; -1 if there is none.
std::int64_t number(std::string_view text) {
  std::int64_t value = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && value >= 0 ? value : -1;
}

}  // namespace

bool is_busy(int status) {
  return status == 408 || status == 429 || status >= 500;
}

seconds asked_wait(const net::Response& response, std::time_t now) {
  const std::string after(response.header("retry-after"));
  if (const std::int64_t wait = number(after); wait >= 0) return seconds(wait);
  std::tm date{};
  if (!after.empty() && strptime(after.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &date) != nullptr)
    return seconds(std::max<std::time_t>(0, timegm(&date) - now));
  const std::string_view limit = response.header("ratelimit");
  const std::size_t at = limit.find(";t=");
  return seconds(at == limit.npos ? 0 : std::max<std::int64_t>(0, number(limit.substr(at + 3))));
}

RetryTimer::RetryTimer(RetryPolicy trying, std::function<void(const std::string&)> say)
    : retry_(std::move(trying)), say_(std::move(say)) {}

bool RetryTimer::wait(const std::string& fault, seconds asked) {
  const Milliseconds usual = std::min(kLongestWait, kFirstWait * (1 << std::min(tries_++, 10)));
  const Milliseconds least = asked.count() > 0 ? Milliseconds(asked) : usual;
  if (waited_ + least > retry_.patience) return false;
  const auto more = std::uniform_int_distribution<std::int64_t>(0, std::min(least, kLongestWait).count() / 4)(chance_);
  const Milliseconds wait = least + Milliseconds(more);
  waited_ += wait;
  if (wait > kWorthSaying)
    say_(fmt::format("{}: trying again in {} s, for up to {} s", fault, wait.count() / 1000, retry_.patience.count()));
  for (const auto until = Clock::now() + wait; Clock::now() < until;) {
    if (!retry_.may_continue()) return false;
    std::this_thread::sleep_for(Milliseconds(50));
    activity::tick();
  }
  return true;
}

}  // namespace qft::hub

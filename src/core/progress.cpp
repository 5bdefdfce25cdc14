#include "qft/core/progress.h"
#include "qft/core/units.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace qft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kInterval = std::chrono::milliseconds(100);

int terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

}  // namespace

Progress::Progress(std::string title, std::int64_t total, bool active)
    : title_(std::move(title)),
      total_(total),
      draws_(active && isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_draw_(start_ - kInterval) {}

Progress::~Progress() { clear(); }

void Progress::update(std::int64_t done, std::string_view suffix) {
  if (!draws_) return;
  const auto now = Clock::now();
  if (now - last_draw_ < kInterval && done != total_) return;
  last_draw_ = now;
  draw(done, suffix);
}

void Progress::clear() {
  if (draws_) std::fputs("\r\x1b[K", stderr);
}

void Progress::draw(std::int64_t done, std::string_view suffix) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line;
  if (total_ > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    constexpr int kBar = 24;
    const int full = static_cast<int>(share * kBar);
    const double left = done > 0 ? elapsed * (1.0 - share) / share : NAN;
    line = fmt::format("{} [{}{}] {}/{} {}<{} {}", title_, std::string(static_cast<std::size_t>(full), '#'),
                       std::string(static_cast<std::size_t>(kBar - full), '.'), done, total_, format_duration(elapsed),
                       format_duration(left), suffix);
  } else {
    line = fmt::format("{} {} {} {}", title_, done, format_duration(elapsed), suffix);
  }
  line.resize(std::min(line.size(), static_cast<std::size_t>(terminal_width() - 1)));
  std::fputs(("\r\x1b[K" + line).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace qft

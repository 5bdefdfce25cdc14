#include "qft/core/progress.h"

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

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto s = static_cast<std::int64_t>(seconds);
  if (s >= 3600) return fmt::format("{}:{:02d}:{:02d}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{:02d}:{:02d}", s / 60, s % 60);
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000.0 && unit < 4; ++unit) bytes /= 1000.0;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.2f} {}", bytes, kUnits[unit]);
}

}  // namespace qft

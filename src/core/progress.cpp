#include "qft/core/progress.h"

#include "qft/core/log.h"
#include "qft/core/program.h"
#include "qft/core/units.h"

#include <algorithm>
#include <cmath>
#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

namespace qft {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
/// Upper bound of the time a launcher takes to print a log line on its terminal.
constexpr auto kRelay = std::chrono::milliseconds(300);
constexpr auto kLongestWait = std::chrono::seconds(60);
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

Progress::Progress(std::string title, std::int64_t total, bool active, Clock::duration first_line)
    : title_(std::move(title)), total_(total), active_(active), start_(Clock::now()), next_(start_), wait_(first_line) {
  if (!active) return;
  if (const std::string path = progress_terminal(); !path.empty())
    terminal_ = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  relayed_ = isatty(STDERR_FILENO) != 1;
  if (terminal_ < 0) next_ += wait_;
}

Progress::~Progress() {
  clear();
  if (terminal_ >= 0) close(terminal_);
}

void Progress::update(std::int64_t done, std::string_view suffix) {
  if (!active_) return;
  const auto now = Clock::now();
  if (now < next_) return;
  if (terminal_ >= 0) {
    draw(done, suffix);
    next_ = now + kRedraw;
  } else {
    log_line(done, suffix);
    wait_ = std::min<Clock::duration>(2 * wait_, kLongestWait);
    next_ = now + wait_;
  }
}

void Progress::clear() {
  if (!active_) return;
  if (terminal_ >= 0) put(kClearLine);
  next_ = Clock::now() + (terminal_ < 0 ? wait_ : relayed_ ? Clock::duration(kRelay) : Clock::duration(0));
}

std::string Progress::times(std::int64_t done) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  if (total_ == 0) return format_duration(elapsed);
  const double left = done > 0 ? elapsed * static_cast<double>(total_ - done) / static_cast<double>(done) : NAN;
  return fmt::format("{}<{}", format_duration(elapsed), format_duration(left));
}

void Progress::log_line(std::int64_t done, std::string_view suffix) const {
  const std::string count = total_ > 0 ? fmt::format("{}/{}", done, total_) : fmt::format("{}", done);
  log::info("{} {}  {}  {}", title_, count, times(done), suffix);
}

void Progress::draw(std::int64_t done, std::string_view suffix) const {
  std::string line;
  if (total_ > 0) {
    const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
    constexpr int kBar = 24;
    const int full = static_cast<int>(share * kBar);
    line = fmt::format("{} [{}{}] {}/{} {} {}", title_, std::string(static_cast<std::size_t>(full), '#'),
                       std::string(static_cast<std::size_t>(kBar - full), '.'), done, total_, times(done), suffix);
  } else {
    line = fmt::format("{} {} {} {}", title_, done, times(done), suffix);
  }
  line.resize(std::min(line.size(), static_cast<std::size_t>(terminal_columns(terminal_) - 1)));
  // Return the cursor, so that other output begins in the first column.
  put(fmt::format("{}{}\r", kClearLine, line));
}

void Progress::put(std::string_view text) const {
  // A failure to draw must not stop the run.
  [[maybe_unused]] const auto written = write(terminal_, text.data(), text.size());
}

}  // namespace qft

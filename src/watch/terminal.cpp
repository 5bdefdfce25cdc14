#include "qft/watch/terminal.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/io/storage.h"
#include "qft/watch/page.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

namespace qft::watch {
namespace {

constexpr int kRefreshMilliseconds = 2000;
volatile std::sig_atomic_t g_ended = 0;

void end(int) {
  g_ended = 1;
}
void wake(int) {}  // on a resize: makes poll() return

/// Returns columns and lines of the terminal, else COLUMNS and LINES.
std::pair<int, int> size_of_terminal() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) return {size.ws_col, size.ws_row};
  const auto variable = [](const char* name, int otherwise) {
    const char* text = std::getenv(name);
    const int n = text == nullptr ? 0 : std::atoi(text);
    return n > 0 ? std::clamp(n, 40, 500) : otherwise;
  };
  return {variable("COLUMNS", 100), variable("LINES", 45)};
}

/// Uses the terminal's alternate screen without line editing and echo; restores the terminal at the end, also after a signal.
class Screen {
 public:
  Screen() {
    if (::isatty(STDOUT_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0)
      fail_config("qft watch needs a terminal: use --once to print one page without one");
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) handle(number, end);
    handle(SIGWINCH, wake);
    put("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    put("\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static void put(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  /// Returns the pressed key; 0 if none was pressed in this time. Arrows are n or p.
  static char key(int milliseconds) {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    char bytes[8] = {};
    if (::poll(&in, 1, milliseconds) <= 0) return 0;
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0) return 'q';  // the terminal is gone
    if (n == 1) return bytes[0] == '\x1b' ? 'q' : bytes[0];
    if (n == 3 && bytes[0] == '\x1b') return bytes[2] == 'C' || bytes[2] == 'B' ? 'n' : 'p';
    return 0;
  }

 private:
  static void handle(int number, void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    ::sigaction(number, &action, nullptr);
  }
  termios before_{};
};

/// Returns the curve `by` places after `metric`, which may be negative.
std::string next_metric(const RunView& run, const std::string& metric, int by) {
  std::vector<std::string> names;
  for (const auto& [name, curve] : run.curves) names.push_back(name);
  if (names.empty()) return metric;
  const auto here = std::ranges::find(names, metric) - names.begin();
  const auto n = static_cast<std::ptrdiff_t>(names.size());
  return names[static_cast<std::size_t>((here + by + n) % n)];
}

}  // namespace

void show(const std::filesystem::path& output_dir) {
  RunReader reader(output_dir);
  reader.refresh();
  const Screen screen;
  std::string metric = "loss";
  while (g_ended == 0) {
    const RunView& run = reader.refresh();
    const auto [width, height] = size_of_terminal();
    const PageOptions options{width, height - 1, true, metric, unix_seconds()};
    std::string page = "\x1b[H";
    for (const char c : text_page(run, options)) page += c == '\n' ? "\x1b[K\n" : std::string(1, c);
    Screen::put(page + "\x1b[J\x1b[2mq quits   n p other curves\x1b[0m");
    switch (Screen::key(kRefreshMilliseconds)) {
      case 'q':
      case 'Q':
      case 3:
        return;
      case 'n':
      case '\t':
        metric = next_metric(run, metric, 1);
        break;
      case 'p':
        metric = next_metric(run, metric, -1);
        break;
      default:
        break;
    }
  }
}

void print_once(const std::filesystem::path& output_dir) {
  RunReader reader(output_dir);
  const auto [width, height] = size_of_terminal();
  const std::string page = text_page(reader.refresh(), {width, height, ::isatty(STDOUT_FILENO) != 0, "loss", unix_seconds()});
  std::fwrite(page.data(), 1, page.size(), stdout);
}

int columns_of_output() {
  return size_of_terminal().first;
}

std::filesystem::path write_report(const std::filesystem::path& output_dir) {
  RunReader reader(output_dir);
  const auto path = output_dir / kReportFile;
  io::atomic_write_file(io::posix_storage(), path, html_page(reader.refresh(), unix_seconds()));
  return path;
}

}  // namespace qft::watch

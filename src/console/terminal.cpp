#include "qft/console/terminal.h"

#include "qft/core/error.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace qft::console {
namespace {

constexpr std::string_view kPasteMarksOn = "\x1b[?2004h", kPasteMarksOff = "\x1b[?2004l";
constexpr int kDeadly[] = {SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// State for signal handlers: plain data only.
volatile std::sig_atomic_t g_interrupted = 0;
std::atomic<bool> g_taken{false};
termios g_before{}, g_now{};
struct sigaction g_deadly_before[std::size(kDeadly)], g_interrupt_before, g_stop_before, g_size_before;

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;
    if (n > 0) text.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Safe in a signal handler.
void give_back() {
  if (!g_taken.exchange(false)) return;
  put(kPasteMarksOff);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_before);
}

void take() {
  if (!g_taken.exchange(true)) put(kPasteMarksOn);
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_now);
}

struct sigaction action_of(void (*handler)(int), int flags) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = flags;
  return action;
}

void note_interrupt(int) {
  g_interrupted = 1;
}
void note_size(int) {}  // makes poll() return

/// Restores the terminal, then lets the signal take its earlier action.
void end_by(int number) {
  const int error = errno;
  give_back();
  for (std::size_t i = 0; i < std::size(kDeadly); ++i)
    if (kDeadly[i] == number) ::sigaction(number, &g_deadly_before[i], nullptr);
  ::raise(number);
  errno = error;
}

/// While the program is stopped, the shell uses the terminal.
void stop_by(int) {
  const int error = errno;
  const bool taken = g_taken;
  give_back();
  struct sigaction ours;
  ::sigaction(SIGTSTP, &g_stop_before, &ours);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &ours, nullptr);
  if (taken) take();
  errno = error;
}

}  // namespace

bool Terminal::present() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && std::string_view(kind) != "dumb" &&
         *kind != '\0';
}

Terminal::Terminal() {
  require(present() && ::tcgetattr(STDIN_FILENO, &g_before) == 0, "standard input and output are not a terminal");
  static const bool registered = std::atexit(give_back) == 0 && std::at_quick_exit(give_back) == 0;
  static_cast<void>(registered);
  for (std::size_t i = 0; i < std::size(kDeadly); ++i) {
    const auto action = action_of(end_by, SA_NODEFER);
    ::sigaction(kDeadly[i], nullptr, &g_deadly_before[i]);
    if (g_deadly_before[i].sa_handler != SIG_IGN) ::sigaction(kDeadly[i], &action, nullptr);  // nohup ignores SIGHUP
  }
  // Writes continue after a signal, but poll() does not.
  const auto interrupt = action_of(note_interrupt, SA_RESTART), stop = action_of(stop_by, SA_RESTART | SA_NODEFER),
             size = action_of(note_size, SA_RESTART);
  ::sigaction(SIGINT, &interrupt, &g_interrupt_before);
  ::sigaction(SIGWINCH, &size, &g_size_before);
  ::sigaction(SIGTSTP, nullptr, &g_stop_before);
  if (g_stop_before.sa_handler != SIG_IGN) ::sigaction(SIGTSTP, &stop, nullptr);
  forget_interrupt();
  take_keys(false);
}

Terminal::~Terminal() {
  give_back();
  for (std::size_t i = 0; i < std::size(kDeadly); ++i) ::sigaction(kDeadly[i], &g_deadly_before[i], nullptr);
  ::sigaction(SIGINT, &g_interrupt_before, nullptr);
  ::sigaction(SIGTSTP, &g_stop_before, nullptr);
  ::sigaction(SIGWINCH, &g_size_before, nullptr);
}

void Terminal::take_keys(bool on) {
  g_now = g_before;
  g_now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN | (on ? ISIG : 0));
  // Keys typed during an answer are read after it: Enter is the same byte in both modes.
  g_now.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | (on ? IXON : 0));
  g_now.c_cc[VMIN] = 1;
  g_now.c_cc[VTIME] = 0;
  take();
}

int Terminal::read(int milliseconds) {
  if (pending()) return static_cast<unsigned char>(bytes_[at_++]);
  if (interrupted()) return kWoken;
  pollfd in{STDIN_FILENO, POLLIN, 0};
  const int ready = ::poll(&in, 1, milliseconds);
  if (ready == 0) return kTimeout;
  if (ready < 0) return errno == EINTR ? kWoken : kClosed;
  char block[4096];
  const ssize_t n = ::read(STDIN_FILENO, block, sizeof block);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return kWoken;
  if (n <= 0) return kClosed;
  bytes_.assign(block, static_cast<std::size_t>(n));
  at_ = 1;
  return static_cast<unsigned char>(bytes_[0]);
}

void Terminal::write(std::string_view text) {
  put(text);
}

Extent Terminal::extent() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

void Terminal::suspend() {
  ::kill(0, SIGTSTP);
}

bool Terminal::interrupted() {
  return g_interrupted != 0;
}
void Terminal::forget_interrupt() {
  g_interrupted = 0;
}

}  // namespace qft::console

// The terminal of an interactive program: sets its modes, reads keys, handles Ctrl-C, and restores the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::console {

struct Extent {
  int columns = 80, lines = 24;
};

/// Only one may exist. While it exists, input is not echoed, marks enclose pasted text, and SIGINT sets interrupted() instead of
/// ending the program. The destructor, exit() and every signal that ends or stops the program restore the terminal.
class Terminal {
 public:
  /// True if standard input and output are terminals that support escape sequences.
  static bool present();

  /// Throws Error unless present().
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// true: read() gets every key as bytes, including Ctrl-C and Ctrl-Z; false: these two send their signals.
  void take_keys(bool on);
  /// Results of read() that are not bytes.
  enum : int { kTimeout = -1, kClosed = -2, kWoken = -3 };
  /// Returns the next byte; kTimeout after `milliseconds` (-1: no timeout), kClosed at the end of input, kWoken after a signal or
  /// a size change.
  int read(int milliseconds);
  /// True if read() has buffered bytes.
  bool pending() const { return at_ < bytes_.size(); }
  /// Writes the whole text at once.
  void write(std::string_view text);
  Extent extent() const;
  /// Stops the program like Ctrl-Z; returns when it continues.
  void suspend();

  /// True if a SIGINT arrived since forget_interrupt().
  static bool interrupted();
  static void forget_interrupt();

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace qft::console

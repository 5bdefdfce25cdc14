// The terminal while a program talks to a person: its modes, its keys, Ctrl-C, and that it is given back as it was.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::console {

struct Extent {
  int columns = 80, lines = 24;
};

/// One at a time. While it lives nothing is echoed, pasted text comes between marks, and SIGINT sets interrupted() instead of
/// ending the program. The destructor, exit() and each signal that ends or stops the program give the terminal back.
class Terminal {
 public:
  /// Whether standard input and output are terminals that know escape sequences.
  static bool present();

  /// Throws Error where present() does not hold.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// true: each key is a byte to read, Ctrl-C and Ctrl-Z too; false: those two send their signals.
  void take_keys(bool on);
  /// Results of read() without a byte.
  enum : int { kTimeout = -1, kClosed = -2, kWoken = -3 };
  /// The next byte; kTimeout after so many milliseconds (-1: never), kClosed at the end of input, kWoken after a signal or a
  /// changed size.
  int read(int milliseconds);
  /// Whether bytes lie ready that read() has taken from the system already.
  bool pending() const { return at_ < bytes_.size(); }
  /// Writes all of it at once.
  void write(std::string_view text);
  Extent extent() const;
  /// Stops the program as Ctrl-Z does; returns when it goes on.
  void suspend();

  /// Whether there was a SIGINT since forget_interrupt().
  static bool interrupted();
  static void forget_interrupt();

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace qft::console

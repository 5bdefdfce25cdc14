// How far something is: a bar on the terminal of the person who started it, or else a line of the log now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  /// `active` false (other ranks) makes every call a no-op. `total` 0: unknown, only counts are shown. Without a terminal
  /// (drawing_terminal()) a line is logged after `first_line`, then twice as long later each time, up to a minute.
  Progress(std::string title, std::int64_t total, bool active = true, Clock::duration first_line = std::chrono::seconds(10));
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Sets the count and the text to the right of the bar; redraws at most ten times a second.
  void update(std::int64_t done, std::string_view suffix = {});
  /// To be called before something else is printed: clears the bar, which the next update draws again; the next line waits.
  void clear();

 private:
  void draw(std::int64_t done, std::string_view suffix) const;
  void log_line(std::int64_t done, std::string_view suffix) const;
  std::string times(std::int64_t done) const;
  void put(std::string_view text) const;

  std::string title_;
  std::int64_t total_;
  bool active_;
  int terminal_ = -1;     ///< a file descriptor; -1: none
  bool relayed_ = false;  ///< the terminal is the launcher's, which brings our log there a little later
  Clock::time_point start_, next_;
  Clock::duration wait_;  ///< between lines
};

}  // namespace qft

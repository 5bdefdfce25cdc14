// Shows progress: a bar on the user's terminal, or otherwise an occasional log line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  /// If not `active` (other ranks), every call is a no-op. `total` 0: unknown, only counts are shown. Without a terminal
  /// (progress_terminal()) a line is logged after `first_line`, then at intervals that double up to a minute.
  Progress(std::string title, std::int64_t total, bool active = true, Clock::duration first_line = std::chrono::seconds(10));
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// Sets the count and the text to the right of the bar. Redraws at most ten times a second.
  void update(std::int64_t done, std::string_view suffix = {});
  /// Clears the bar; the next update draws it again. Call this before other output. The next log line is postponed.
  void clear();

 private:
  void draw(std::int64_t done, std::string_view suffix) const;
  void log_line(std::int64_t done, std::string_view suffix) const;
  std::string times(std::int64_t done) const;
  void put(std::string_view text) const;

  std::string title_;
  std::int64_t total_;
  bool active_;
  int terminal_ = -1;     ///< file descriptor; -1: no terminal
  bool relayed_ = false;  ///< the terminal is the launcher's; our log reaches it a little later
  Clock::time_point start_, next_;
  Clock::duration wait_;  ///< time between log lines
};

}  // namespace qft

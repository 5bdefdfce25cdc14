// A progress bar on stderr where that is a terminal; nothing in a batch log, where callers write plain lines instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft {

class Progress {
 public:
  /// `active` false (other ranks) makes every call a no-op. `total` 0: unknown, only counts are shown.
  Progress(std::string title, std::int64_t total, bool active = true);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// True where a bar is drawn.
  bool on_terminal() const { return draws_; }
  /// Sets the count and the text to the right of the bar; redraws at most ten times a second.
  void update(std::int64_t done, std::string_view suffix = {});
  /// Clears the line, so that something else can be printed; the next update draws again.
  void clear();

 private:
  void draw(std::int64_t done, std::string_view suffix) const;

  std::string title_;
  std::int64_t total_;
  bool draws_;
  std::chrono::steady_clock::time_point start_, last_draw_;
};

}  // namespace qft

// Turns a terminal's input into keys.
#pragma once

#include <functional>
#include <string>

namespace qft::console {

enum class Key {
  none,
  text,   ///< one character, in Press::text
  paste,  ///< the pasted text, in Press::text
  enter,
  new_line,
  left,
  right,
  word_left,
  word_right,
  home,
  end,
  up,
  down,
  erase_left,
  erase_right,
  erase_word_left,
  erase_space_left,
  erase_word_right,
  erase_to_home,
  erase_to_end,
  put_back,
  clear_screen,
  interrupt,
  end_of_input,
  suspend,
  woken,  ///< not a key: a signal, or a new terminal size
  closed,
};

struct Press {
  Key key = Key::none;
  std::string text = {};  ///< valid UTF-8 without control characters except tabs and \n
};

class KeyReader {
 public:
  /// Reads bytes like Terminal::read().
  using Source = std::function<int(int milliseconds)>;
  explicit KeyReader(Source source) : source_(std::move(source)) {}

  /// Waits for a key. An unknown sequence gives Key::none; no part of it becomes text.
  Press next();

 private:
  Press after_escape();
  Press control_sequence();
  Press pasted();
  int next_byte(int milliseconds);  ///< next byte of an unfinished key
  std::string character(unsigned char first);

  Source source_;
};

}  // namespace qft::console

// What a terminal sends, as keys.
#pragma once

#include <functional>
#include <string>

namespace qft::console {

enum class Key {
  none,
  text,   ///< one character, in Press::text
  paste,  ///< all that was pasted, in Press::text
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
  woken,  ///< no key: a signal, or another size of the terminal
  closed,
};

struct Press {
  Key key = Key::none;
  std::string text = {};  ///< valid UTF-8 without control characters, but for tabs and \n
};

class KeyReader {
 public:
  /// Terminal::read() or its like.
  using Source = std::function<int(int milliseconds)>;
  explicit KeyReader(Source source) : source_(std::move(source)) {}

  /// Waits for a key. An unknown sequence is none: nothing of it becomes text.
  Press next();

 private:
  Press after_escape();
  Press control_sequence();
  Press pasted();
  int following(int milliseconds);  ///< byte of a key that has begun
  std::string character(unsigned char first);

  Source source_;
};

}  // namespace qft::console

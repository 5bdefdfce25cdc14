// A text that is being typed: what each key does to it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::console {

/// Valid UTF-8, and a cursor between two characters as a person sees them. "Line" means what stands between two \n.
class EditText {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  ///< in bytes

  /// The cursor goes to the end.
  void set(std::string text);
  void insert(std::string_view text);
  void left();
  void right();
  void word_left() { cursor_ = word_begin(); }
  void word_right() { cursor_ = word_end(); }
  void home() { cursor_ = line_begin(cursor_); }
  void end() { cursor_ = line_end(cursor_); }
  /// To the same place of the line above or below; false where there is none.
  bool up();
  bool down();
  void erase_left();
  void erase_right();
  // These keep what they take for put_back().
  void erase_word_left() { cut(word_begin(), cursor_); }
  void erase_space_left();  ///< to the last white space
  void erase_word_right() { cut(cursor_, word_end()); }
  void erase_to_home() { cut(line_begin(cursor_), cursor_); }
  void erase_to_end();  ///< at a line's end, the line break
  void put_back() { insert(taken_); }
  /// Whether it ends with a backslash that no other one precedes: then a line break takes its place.
  bool continue_line();

 private:
  std::size_t line_begin(std::size_t at) const;
  std::size_t line_end(std::size_t at) const;
  std::size_t word_begin() const;
  std::size_t word_end() const;
  int column() const;
  void go_to_column(std::size_t line, int column);
  void cut(std::size_t begin, std::size_t end);

  std::string text_, taken_;
  std::size_t cursor_ = 0;
};

}  // namespace qft::console

// The text in the editor, and the effect of each key.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qft::console {

/// Valid UTF-8, with a cursor between two grapheme clusters. A "line" is the text between two \n.
class EditText {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  ///< in bytes

  /// Replaces the text and moves the cursor to its end.
  void set(std::string text);
  void insert(std::string_view text);
  void left();
  void right();
  void word_left() { cursor_ = word_begin(); }
  void word_right() { cursor_ = word_end(); }
  void home() { cursor_ = line_begin(cursor_); }
  void end() { cursor_ = line_end(cursor_); }
  /// Moves to the same column in the line above or below; false if there is no such line.
  bool up();
  bool down();
  void erase_left();
  void erase_right();
  // These keep the erased text for put_back().
  void erase_word_left() { cut(word_begin(), cursor_); }
  void erase_space_left();  ///< back to the last white space
  void erase_word_right() { cut(cursor_, word_end()); }
  void erase_to_home() { cut(line_begin(cursor_), cursor_); }
  void erase_to_end();  ///< at a line's end: erases the line break
  void put_back() { insert(taken_); }
  /// If the text ends with a single backslash, replaces it by a line break and returns true.
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

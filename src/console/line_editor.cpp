#include "qft/console/line_editor.h"

#include <optional>
#include <utility>

#include "edit_text.h"
#include "keys.h"
#include "screen.h"

namespace qft::console {
namespace {

/// While it exists, the terminal passes all keys as bytes.
class KeysTaken {
 public:
  explicit KeysTaken(Terminal& terminal) : terminal_(terminal) {
    terminal_.take_keys(true);
    Terminal::forget_interrupt();  // it was meant for the earlier work
  }
  ~KeysTaken() {
    Terminal::forget_interrupt();
    terminal_.take_keys(false);
  }
  KeysTaken(const KeysTaken&) = delete;
  KeysTaken& operator=(const KeysTaken&) = delete;

 private:
  Terminal& terminal_;
};

/// One message during typing.
class Typing {
 public:
  Typing(Terminal& terminal, const History& history, std::string_view prompt)
      : terminal_(terminal), prompt_(prompt), old_(history.texts()), place_(old_.size()), keys_([&terminal](int milliseconds) {
          return terminal.read(milliseconds);
        }) {}

  Input read() {
    const KeysTaken keys(terminal_);
    for (;;) {
      if (!terminal_.pending()) draw();
      Press press = keys_.next();
      if (press.key == Key::woken && Terminal::interrupted()) press.key = Key::interrupt;
      const bool again = std::exchange(warned_, false);
      if (const auto end = ended(press.key, again)) {
        leave();
        return {*end, *end == Input::End::message ? edit_.text() : ""};
      }
      if (press.key == Key::woken) warned_ = again;
      if (!moved(press.key)) change(press);
    }
  }

 private:
  void draw() {
    const Extent extent = terminal_.extent();
    terminal_.write(screen_.draw(lay_out(edit_.text(), edit_.cursor(), prompt_, extent.columns), extent));
  }

  /// Moves to the row below the text.
  void leave() {
    const Extent extent = terminal_.extent();
    terminal_.write(screen_.draw(lay_out(edit_.text(), edit_.text().size(), prompt_, extent.columns), extent) + "\r\n");
    screen_.restart();
  }

  std::optional<Input::End> ended(Key key, bool again) {
    const bool empty = edit_.text().empty();
    if (key == Key::closed || (key == Key::end_of_input && empty)) return Input::End::closed;
    if (key == Key::interrupt && empty && again) return Input::End::interrupted;
    if (key == Key::enter && !edit_.continue_line()) return Input::End::message;
    return std::nullopt;
  }

  /// Ctrl-C clears the text. On an empty text it says how to end the program.
  void interrupt() {
    Terminal::forget_interrupt();
    place_ = old_.size();
    if (edit_.text().empty()) {
      leave();
      terminal_.write("Press Ctrl-C again, or Ctrl-D, to end the program\r\n");
      warned_ = true;
    }
    edit_.set("");
  }

  void recall(std::size_t place) {
    if (place > old_.size()) return;
    if (place_ == old_.size()) draft_ = edit_.text();
    place_ = place;
    edit_.set(place_ == old_.size() ? draft_ : old_[place_]);
  }

  /// Handles keys that leave the text unchanged or replace it.
  bool moved(Key key) {
    switch (key) {
      case Key::left:
        edit_.left();
        return true;
      case Key::right:
        edit_.right();
        return true;
      case Key::word_left:
        edit_.word_left();
        return true;
      case Key::word_right:
        edit_.word_right();
        return true;
      case Key::home:
        edit_.home();
        return true;
      case Key::end:
        edit_.end();
        return true;
      case Key::up:
        if (!edit_.up() && place_ > 0) recall(place_ - 1);
        return true;
      case Key::down:
        if (!edit_.down()) recall(place_ + 1);
        return true;
      case Key::interrupt:
        interrupt();
        return true;
      case Key::suspend:
        leave();
        terminal_.suspend();
        return true;
      case Key::clear_screen:
        terminal_.write("\x1b[H\x1b[2J");
        screen_.restart();
        return true;
      default:
        return false;
    }
  }

  void change(const Press& press) {
    switch (press.key) {
      case Key::text:
      case Key::paste:
        return edit_.insert(press.text);
      case Key::new_line:
        return edit_.insert("\n");
      case Key::erase_left:
        return edit_.erase_left();
      case Key::end_of_input:
      case Key::erase_right:
        return edit_.erase_right();
      case Key::erase_word_left:
        return edit_.erase_word_left();
      case Key::erase_space_left:
        return edit_.erase_space_left();
      case Key::erase_word_right:
        return edit_.erase_word_right();
      case Key::erase_to_home:
        return edit_.erase_to_home();
      case Key::erase_to_end:
        return edit_.erase_to_end();
      case Key::put_back:
        return edit_.put_back();
      default:
        return;
    }
  }

  Terminal& terminal_;
  std::string prompt_;
  std::vector<std::string> old_;
  std::size_t place_;  ///< index in old_; old_.size() is the current text
  std::string draft_;
  KeyReader keys_;
  EditText edit_;
  Screen screen_;
  bool warned_ = false;
};

}  // namespace

Input LineEditor::read() {
  Input input = Typing(terminal_, history_, prompt_).read();
  const bool blank = input.text.find_first_not_of(" \t\n") == std::string::npos;
  if (input.end == Input::End::message && !blank) history_.add(input.text);
  return input;
}

}  // namespace qft::console

// Reads the user's messages from a terminal, with editing.
#pragma once

#include "qft/console/history.h"
#include "qft/console/terminal.h"

#include <string>

namespace qft::console {

struct Input {
  enum class End { message, interrupted, closed };
  End end = End::message;
  std::string text;  ///< valid UTF-8; lines are separated by \n
};

/// Uses the keys of readline's Emacs mode. Enter ends a message. A backslash before Enter, or Alt-Enter, begins a new line.
/// Pasted text is inserted unchanged. Ctrl-C clears the text.
class LineEditor {
 public:
  /// `terminal` and `history` must outlive the editor. `prompt` stands before the first line.
  LineEditor(Terminal& terminal, History& history, std::string prompt)
      : terminal_(terminal), history_(history), prompt_(std::move(prompt)) {}

  /// Reads the next message and adds it to the history unless it is blank. Returns `interrupted` after Ctrl-C twice without text,
  /// and `closed` after Ctrl-D without text or if the terminal is gone.
  Input read();

 private:
  Terminal& terminal_;
  History& history_;
  std::string prompt_;
};

}  // namespace qft::console

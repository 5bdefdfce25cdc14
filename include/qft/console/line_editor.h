// A person's messages from a terminal, edited as they are typed.
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

/// Keys are those of readline's Emacs mode. Enter ends a message, unless a backslash stands at its end; that and Alt-Enter begin
/// another line. Pasted text goes in as it is. Ctrl-C clears the text.
class LineEditor {
 public:
  /// Both must outlive it. `prompt` stands before the first line.
  LineEditor(Terminal& terminal, History& history, std::string prompt)
      : terminal_(terminal), history_(history), prompt_(std::move(prompt)) {}

  /// The next message, which goes to the history unless it is blank. interrupted: Ctrl-C twice without a text; closed: Ctrl-D
  /// without a text, or the terminal is gone.
  Input read();

 private:
  Terminal& terminal_;
  History& history_;
  std::string prompt_;
};

}  // namespace qft::console

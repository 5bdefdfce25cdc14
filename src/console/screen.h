// The place of the edited text on the terminal.
#pragma once

#include "qft/console/terminal.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace qft::console {

/// A text divided into terminal rows.
struct Layout {
  struct Row {
    std::string text;
    int columns = 0;
  };
  std::vector<Row> rows;
  std::size_t cursor_row = 0;
  Row left_of_cursor;  ///< the part of the cursor's row to its left
};

/// Lays out a text. The first line stands after `prompt`; the other lines have the same indentation. `cursor` is in bytes.
Layout lay_out(std::string_view text, std::size_t cursor, std::string_view prompt, int columns);

/// Redraws a text in the same place.
class Screen {
 public:
  /// Returns the output that shows the layout and places the cursor. If the terminal has too few lines, shows the rows around the
  /// cursor.
  std::string draw(const Layout& layout, Extent extent);
  /// Starts the next text at the cursor's position: at the left of a new row.
  void restart() { above_.clear(), left_ = 0; }

 private:
  std::vector<int> above_;  ///< widths of the rows above the cursor
  int left_ = 0;            ///< columns to the left of the cursor
};

}  // namespace qft::console

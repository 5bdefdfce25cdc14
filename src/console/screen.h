// Where a text that is being typed stands on the terminal.
#pragma once

#include "qft/console/terminal.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace qft::console {

/// A text as rows of the terminal.
struct Layout {
  struct Row {
    std::string text;
    int columns = 0;
  };
  std::vector<Row> rows;
  std::size_t cursor_row = 0;
  Row left_of_cursor;  ///< in its row
};

/// The first line stands behind `prompt`, the others as far from the left. `cursor` is in bytes.
Layout lay_out(std::string_view text, std::size_t cursor, std::string_view prompt, int columns);

/// Draws one text again and again in the same place.
class Screen {
 public:
  /// What to write to show it, with the cursor in its place. Where the terminal has fewer lines, the rows around the cursor are
  /// shown.
  std::string draw(const Layout& layout, Extent extent);
  /// The next text begins where the cursor is then: at the left of a new row.
  void start_anew() { above_.clear(), left_ = 0; }

 private:
  std::vector<int> above_;  ///< columns of the rows above the cursor
  int left_ = 0;            ///< columns left of it
};

}  // namespace qft::console

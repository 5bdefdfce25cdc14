#include "screen.h"

#include "qft/console/printable.h"

#include <algorithm>

namespace qft::console {
namespace {

/// Returns the number of rows for this number of columns.
int rows_of(int columns, int width) {
  return std::max(1, (columns + width - 1) / width);
}

}  // namespace

Layout lay_out(std::string_view text, std::size_t cursor, std::string_view prompt, int columns) {
  Layout layout;
  const int indent = static_cast<int>(prompt.size());
  layout.rows.push_back({std::string(prompt), indent});
  for (std::size_t at = 0; at <= text.size();) {
    const bool over = at == text.size();
    const Cluster cluster = over ? Cluster{at + 1, 1} : cluster_at(text, at);
    // The cursor needs a column too: at a row's end it moves to the next row.
    const bool breaks = !over && text[at] == '\n';
    if (layout.rows.back().columns + (breaks ? 1 : cluster.columns) > columns) layout.rows.push_back({});
    if (at == cursor) {
      layout.cursor_row = layout.rows.size() - 1;
      layout.left_of_cursor = layout.rows.back();
    }
    if (breaks) {
      layout.rows.push_back({std::string(prompt.size(), ' '), indent});
    } else if (!over) {
      auto& row = layout.rows.back();
      row.text += text[at] == '\t' ? std::string(static_cast<std::size_t>(cluster.columns), ' ')
                                   : std::string(text.substr(at, cluster.end - at));
      row.columns += cluster.columns;
    }
    at = cluster.end;
  }
  return layout;
}

std::string Screen::draw(const Layout& layout, Extent extent) {
  // If the terminal became narrower, it has broken rows into several.
  int up = left_ / extent.columns;
  for (const int columns : above_) up += rows_of(columns, extent.columns);
  std::string out = up > 0 ? "\x1b[" + std::to_string(up) + "A" : "";
  out += "\r\x1b[J";
  const auto shown = std::min(layout.rows.size(), static_cast<std::size_t>(extent.lines));
  const std::size_t top = layout.cursor_row < shown ? 0 : layout.cursor_row + 1 - shown;
  for (std::size_t i = top; i < top + shown; ++i) out += (i == top ? "" : "\r\n") + layout.rows[i].text;
  const std::size_t back = top + shown - 1 - layout.cursor_row;
  if (back > 0) out += "\x1b[" + std::to_string(back) + "A";
  // Terminals disagree about the width of some characters: writing them again places the cursor correctly.
  out += "\r" + layout.left_of_cursor.text;
  above_.clear();
  for (std::size_t i = top; i < layout.cursor_row; ++i) above_.push_back(layout.rows[i].columns);
  left_ = layout.left_of_cursor.columns;
  return out;
}

}  // namespace qft::console

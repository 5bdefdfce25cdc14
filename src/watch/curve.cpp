// Draws curves in characters.
#include "qft/watch/page.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace qft::watch {
namespace {

constexpr int kAxis = 10;  ///< width of the numbers at the left

struct Range {
  double low = INFINITY, high = -INFINITY;
  void take(double v) {
    if (!std::isfinite(v)) return;
    low = std::min(low, v), high = std::max(high, v);
  }
  bool empty() const { return low > high; }
  void widen() {
    if (high - low > 1e-12 * std::max(std::abs(low), std::abs(high))) return;
    const double by = low == 0 ? 1.0 : std::abs(low) * 0.1;
    low -= by, high += by;
  }
  /// Returns a cell in 0 to n - 1.
  int cell(double v, int n) const {
    return std::clamp(static_cast<int>(std::lround((v - low) / (high - low) * (n - 1))), 0, n - 1);
  }
};

/// Dots of one color: two by four per character.
class Canvas {
 public:
  Canvas(int columns, int lines) : columns_(columns), lines_(lines), cells_(static_cast<std::size_t>(columns * lines), 0) {}
  int dots_across() const { return 2 * columns_; }
  int dots_down() const { return 4 * lines_; }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }
  /// Returns the eight dots of a character as the bits of a Unicode Braille pattern.
  int at(int column, int line) const { return cells_[static_cast<std::size_t>(line * columns_ + column)]; }

 private:
  void dot(int x, int y) {
    static constexpr std::array<std::array<int, 4>, 2> kBits = {{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    const int down = dots_down() - 1 - y;
    cells_[static_cast<std::size_t>(down / 4 * columns_ + x / 2)] |=
        kBits[static_cast<std::size_t>(x % 2)][static_cast<std::size_t>(down % 4)];
  }
  int columns_, lines_;
  std::vector<int> cells_;
};

Canvas draw(const Curve& curve, const Range& across, const Range& down, int columns, int lines) {
  Canvas canvas(columns, lines);
  int x0 = -1, y0 = 0;
  for (const auto& [step, value] : curve) {
    if (!std::isfinite(value)) continue;
    const int x = across.cell(static_cast<double>(step), canvas.dots_across()), y = down.cell(value, canvas.dots_down());
    canvas.line(x0 < 0 ? x : x0, x0 < 0 ? y : y0, x, y);
    x0 = x, y0 = y;
  }
  return canvas;
}

/// Returns the axis in front of a picture's row, with a number in some rows.
std::string axis(const Range& down, int line, int lines) {
  const bool labelled = line == 0 || line == lines - 1 || line == lines / 2;
  if (!labelled) return std::string(kAxis, ' ');
  return fmt::format("{:>{}.4g} ", down.high - (down.high - down.low) * line / (lines - 1), kAxis - 1);
}

std::string steps_below(const Range& across, int columns) {
  const std::string left = fmt::format("step {:.0f}", across.low), right = fmt::format("{:.0f}", across.high);
  return fmt::format("{:{}}{}{:>{}}", "", kAxis, left, right, std::max<int>(1, columns - static_cast<int>(left.size())));
}

/// Returns a curve's value in each column; NaN outside the curve.
std::vector<double> by_column(const Curve& curve, const Range& across, int columns) {
  std::vector<double> values(static_cast<std::size_t>(columns), NAN);
  int x0 = -1;
  double v0 = 0;
  for (const auto& [step, value] : curve) {
    if (!std::isfinite(value)) continue;
    const int x = across.cell(static_cast<double>(step), columns);
    if (x0 < 0) x0 = x, v0 = value;
    for (int i = x0; i <= x; ++i) values[static_cast<std::size_t>(i)] = x == x0 ? value : v0 + (value - v0) * (i - x0) / (x - x0);
    x0 = x, v0 = value;
  }
  return values;
}

/// Returns the value at which lines are clipped, so that one diverged run does not flatten all others.
double ceiling(const std::vector<LetteredCurve>& curves) {
  double first = -INFINITY;
  for (const LetteredCurve& c : curves)
    for (const auto& [step, value] : c.curve)
      if (std::isfinite(value)) {
        first = std::max(first, value);
        break;
      }
  return first > 0 ? 2 * first : INFINITY;
}

std::string utf8(int braille) {
  const int code = 0x2800 + braille;
  return {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
          static_cast<char>(0x80 | (code & 0x3F))};
}

}  // namespace

std::vector<std::string> draw_curve(const Curve& curve, const Curve& beside, int width, int height, bool color) {
  Range across, down;
  for (const Curve* c : {&curve, &beside})
    for (const auto& [step, value] : *c)
      if (std::isfinite(value)) across.take(static_cast<double>(step)), down.take(value);
  const int columns = std::max(8, width - kAxis - 1), lines = std::max(2, height - 1);
  if (across.empty()) return {std::string(kAxis, ' ') + "nothing to draw yet"};
  across.widen(), down.widen();
  const Canvas first = draw(curve, across, down, columns, lines), second = draw(beside, across, down, columns, lines);
  std::vector<std::string> rows;
  for (int line = 0; line < lines; ++line) {
    std::string row = axis(down, line, lines);
    int painted = 0;  // current color
    for (int column = 0; column < columns; ++column) {
      const int a = first.at(column, line), b = second.at(column, line), wanted = a != 0 ? 36 : b != 0 ? 33 : painted;
      if (color && wanted != painted) row += fmt::format("\x1b[{}m", wanted);
      painted = wanted;
      row += (a | b) == 0 ? " " : utf8(a | b);
    }
    rows.push_back(row + (color && painted != 0 ? "\x1b[0m" : ""));
  }
  rows.push_back(steps_below(across, columns));
  return rows;
}

std::vector<std::string> draw_letters(const std::vector<LetteredCurve>& curves, int width, int height) {
  Range across, down;
  const double top = ceiling(curves);
  bool cut_off = false;
  for (const LetteredCurve& c : curves)
    for (const auto& [step, value] : c.curve) {
      if (!std::isfinite(value)) continue;
      across.take(static_cast<double>(step)), down.take(std::min(value, top));
      cut_off |= value > top;
    }
  if (across.empty()) return {std::string(kAxis, ' ') + "nothing to draw yet"};
  across.widen(), down.widen();
  const int columns = std::max(8, width - kAxis - 1), lines = std::max(2, height - 1 - (cut_off ? 1 : 0));
  // Letters that fall into a cell; points win over lines.
  std::vector<std::string> line_letters(static_cast<std::size_t>(columns * lines)), point_letters = line_letters;
  const auto put = [&](std::vector<std::string>& cells, char letter, int column, double value) {
    const int line = lines - 1 - down.cell(std::min(value, top), lines);
    cells[static_cast<std::size_t>(line * columns + column)] += letter;
  };
  for (const LetteredCurve& c : curves) {
    if (c.points) {
      for (const auto& [step, value] : c.curve)
        if (std::isfinite(value)) put(point_letters, c.letter, across.cell(static_cast<double>(step), columns), value);
      continue;
    }
    const std::vector<double> values = by_column(c.curve, across, columns);
    for (int i = 0; i < columns; ++i)
      if (const double value = values[static_cast<std::size_t>(i)]; std::isfinite(value)) put(line_letters, c.letter, i, value);
  }
  std::vector<std::string> rows;
  if (cut_off) rows.push_back(fmt::format("{:{}}values above {:.4g} are drawn at that height", "", kAxis, down.high));
  for (int line = 0; line < lines; ++line) {
    std::string row = axis(down, line, lines);
    for (int column = 0; column < columns; ++column) {
      const auto at = static_cast<std::size_t>(line * columns + column);
      const std::string& letters = point_letters[at].empty() ? line_letters[at] : point_letters[at];
      // Curves on top of each other take turns.
      row += letters.empty() ? ' ' : letters[static_cast<std::size_t>(column) % letters.size()];
    }
    rows.push_back(row);
  }
  rows.push_back(steps_below(across, columns));
  return rows;
}

}  // namespace qft::watch

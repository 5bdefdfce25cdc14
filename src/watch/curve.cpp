// A curve in characters.
#include "qft/watch/page.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace qft::watch {
namespace {

constexpr int kAxis = 10;  ///< characters of the numbers at the left

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
  /// 0 to n - 1.
  int cell(double v, int n) const {
    return std::clamp(static_cast<int>(std::lround((v - low) / (high - low) * (n - 1))), 0, n - 1);
  }
};

/// Dots of one color: two a character across, four down.
class Canvas {
 public:
  Canvas(int columns, int lines) : columns_(columns), lines_(lines), cells_(static_cast<std::size_t>(columns * lines), 0) {}
  int dots_across() const { return 2 * columns_; }
  int dots_down() const { return 4 * lines_; }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }
  /// The eight dots of a character, as Unicode's Braille patterns number them.
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
    const bool labelled = line == 0 || line == lines - 1 || line == lines / 2;
    const double value = down.high - (down.high - down.low) * line / (lines - 1);
    std::string row = labelled ? fmt::format("{:>{}.4g} ", value, kAxis - 1) : std::string(kAxis, ' ');
    int painted = 0;  // the color of what comes
    for (int column = 0; column < columns; ++column) {
      const int a = first.at(column, line), b = second.at(column, line), wanted = a != 0 ? 36 : b != 0 ? 33 : painted;
      if (color && wanted != painted) row += fmt::format("\x1b[{}m", wanted);
      painted = wanted;
      row += (a | b) == 0 ? " " : utf8(a | b);
    }
    rows.push_back(row + (color && painted != 0 ? "\x1b[0m" : ""));
  }
  const std::string left = fmt::format("step {:.0f}", across.low), right = fmt::format("{:.0f}", across.high);
  rows.push_back(fmt::format("{:{}}{}{:>{}}", "", kAxis, left, right, std::max<int>(1, columns - static_cast<int>(left.size()))));
  return rows;
}

}  // namespace qft::watch

// A run as a page for people: of characters for a terminal, and of HTML.
#pragma once

#include "qft/watch/run_view.h"

#include <string>
#include <vector>

namespace qft::watch {

struct PageOptions {
  int width = 100, height = 40;  ///< characters
  bool color = false;            ///< with the escape sequences of a terminal
  std::string metric = "loss";   ///< whose curve is drawn
  double now = 0;                ///< Unix time
};

/// Lines that end with a line feed, at most `height` of them, none wider than `width`.
std::string text_page(const RunView& run, const PageOptions& options);

/// A curve in dots, two by four in a character (Braille), with its axes; `height` lines. `beside`: a second one, in other color.
std::vector<std::string> draw_curve(const Curve& curve, const Curve& beside, int width, int height, bool color);

/// A curve whose characters are a letter: its line, or just its points.
struct LetteredCurve {
  char letter;
  Curve curve;
  bool points = false;
};
/// Several curves in one picture of `height` lines with axes, told apart without colors.
std::vector<std::string> draw_letters(const std::vector<LetteredCurve>& curves, int width, int height);

/// A page of its own: it loads nothing. Where it is written while the run goes on it shows how far that was.
std::string html_page(const RunView& run, double now);

/// The file of output_dir that holds it.
inline constexpr const char* kReportFile = "report.html";

}  // namespace qft::watch

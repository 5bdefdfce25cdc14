// Displays a run as a page of characters for a terminal, or of HTML.
#pragma once

#include "qft/watch/run_view.h"

#include <string>
#include <vector>

namespace qft::watch {

struct PageOptions {
  int width = 100, height = 40;  ///< characters
  bool color = false;            ///< use a terminal's escape sequences
  std::string metric = "loss";   ///< curve to draw
  double now = 0;                ///< Unix time
};

/// Returns at most `height` lines, each at most `width` wide and ending with a line feed.
std::string text_page(const RunView& run, const PageOptions& options);

/// Draws a curve in Braille dots, two by four per character, with axes; `height` lines. `beside`: a second curve in another
/// color.
std::vector<std::string> draw_curve(const Curve& curve, const Curve& beside, int width, int height, bool color);

/// A curve drawn with one letter: as a line, or only its points.
struct LetteredCurve {
  char letter;
  Curve curve;
  bool points = false;
};
/// Draws several curves in one picture of `height` lines with axes, distinguishable without colors.
std::vector<std::string> draw_letters(const std::vector<LetteredCurve>& curves, int width, int height);

/// Returns a self-contained HTML page. Written during the run, it shows the progress so far.
std::string html_page(const RunView& run, double now);

/// File in output_dir with this page.
inline constexpr const char* kReportFile = "report.html";

}  // namespace qft::watch

#include "qft/train/run_log.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace qft::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr double kWidth = 800, kHeight = 450, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;

struct Range {
  double low, high;
  double at(double value, double from, double to) const { return from + (value - low) / (high - low) * (to - from); }
};

Range range_of(const Points& points, bool of_x) {
  Range r{INFINITY, -INFINITY};
  for (const auto& [x, y] : points) {
    r.low = std::min(r.low, of_x ? x : y);
    r.high = std::max(r.high, of_x ? x : y);
  }
  if (r.high - r.low < 1e-12) {
    r.low -= 0.5;
    r.high += 0.5;
  }
  return r;
}

std::string polyline(const Points& points, const Range& rx, const Range& ry, const char* color, double opacity) {
  std::string path;
  for (const auto& [x, y] : points)
    path += fmt::format("{:.1f},{:.1f} ", rx.at(x, kLeft, kWidth - kRight), ry.at(y, kHeight - kBottom, kTop));
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-opacity=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", color,
                     opacity, path);
}

Points smoothed(const Points& points) {
  Points out;
  double average = points.front().second;
  const double weight = std::min(0.9, 1.0 - 10.0 / static_cast<double>(points.size() + 10));
  for (const auto& [x, y] : points) {
    average = weight * average + (1.0 - weight) * y;
    out.emplace_back(x, average);
  }
  return out;
}

std::string axes(const Range& rx, const Range& ry) {
  std::string svg;
  for (int i = 0; i <= 5; ++i) {
    const double y = ry.low + (ry.high - ry.low) * i / 5, py = ry.at(y, kHeight - kBottom, kTop);
    const double x = rx.low + (rx.high - rx.low) * i / 5, px = rx.at(x, kLeft, kWidth - kRight);
    svg +=
        fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft, kWidth - kRight, py, py);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n", kLeft - 8, py + 4, y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", px, kHeight - kBottom + 20, x);
  }
  return svg;
}

}  // namespace

std::string loss_plot_svg(const std::string& title, const Points& points) {
  const Range rx = range_of(points, true), ry = range_of(points, false);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n",
      kWidth, kHeight, kWidth / 2, title);
  svg += axes(rx, ry);
  const bool smooth = points.size() > 10;
  svg += polyline(points, rx, ry, "#1f77b4", smooth ? 0.4 : 1.0);
  if (smooth) svg += polyline(smoothed(points), rx, ry, "#1f77b4", 1.0);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n</svg>\n", kWidth / 2, kHeight - 10);
  return svg;
}

}  // namespace qft::train

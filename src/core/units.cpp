#include "qft/core/units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sys/ioctl.h>

#include <fmt/format.h>

namespace qft {
namespace {

std::string scaled(double value, const std::array<const char*, 6>& units) {
  std::size_t unit = 0;
  while (value >= 1000.0 && unit + 1 < units.size()) value /= 1000.0, ++unit;
  return unit == 0 ? fmt::format("{:.0f}{}", value, units[0]) : fmt::format("{:.2f}{}", value, units[unit]);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  const auto s = static_cast<std::int64_t>(seconds);
  if (s >= 3600) return fmt::format("{}:{:02d}:{:02d}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{:02d}:{:02d}", s / 60, s % 60);
}

std::string format_bytes(double bytes) {
  return scaled(bytes, {" B", " kB", " MB", " GB", " TB", " PB"});
}

std::string format_count(double count) {
  return scaled(count, {"", " K", " M", " B", " T", " P"});
}

std::string count_noun(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double unsigned_nan(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = 0;
  bool has_words = false;  // on this line
  while (!text.empty()) {
    const std::size_t word = std::min(text.find(' '), text.size());
    const std::size_t blanks = std::min(text.find_first_not_of(' ', word), text.size()) - word;
    if (column + word > width && has_words) {
      while (out.ends_with(' ')) out.pop_back();
      out += '\n' + std::string(indent, ' ');
      column = indent;
      has_words = false;
    }
    out += text.substr(0, word + blanks);
    column += word + blanks;
    has_words |= word > 0;
    text.remove_prefix(word + blanks);
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

}  // namespace qft

#include "qft/core/units.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

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

}  // namespace qft

// Numbers as people read them, for logs and reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qft {

/// "1:02:03" or "02:03" for a number of seconds; "-" if it is not finite.
std::string format_duration(double seconds);
/// "1.53 GB", "12.00 MB", "312 B": decimal units.
std::string format_bytes(double bytes);
/// "139.35 M", "2.10 K", "312": decimal units.
std::string format_count(double count);
/// "1 step", "2 steps": a noun whose plural has an s.
std::string counted(std::int64_t count, std::string_view noun);
/// `value`, but a NaN without its sign: that means nothing, and would be printed.
double plain_nan(double value);

}  // namespace qft

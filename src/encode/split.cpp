#include "qft/encode/split.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <regex>

namespace qft::encode {
namespace {

constexpr std::size_t kLongest = 1000;  // std::regex uses stack for every character

// Converts percents as datasets does; std::nearbyint rounds half to even, as Python does.
std::int64_t from_percent(std::int64_t percent, std::int64_t records, bool whole_hundredths) {
  if (whole_hundredths) return percent * (records / 100);
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(percent) * static_cast<double>(records) / 100.0));
}

// Parses digits, which may have Python's underscores between them.
std::int64_t to_number(std::string digits) {
  std::erase(digits, '_');
  return digits.empty() || digits == "-" ? 0 : std::stoll(digits);
}

std::int64_t clamp_bound(std::int64_t bound, std::int64_t records) {
  return std::clamp(bound < 0 ? bound + records : bound, INT64_C(0), records);
}

}  // namespace

Split::Part Split::parse_part(const std::string& text, const std::string& where) {
  static const std::regex form(
      R"((\w+)(?:\[(?:(-?[\d_]{1,15})(%)?)?:(?:(-?[\d_]{1,15})(%)?)?\])?(?:\((closest|pct1_dropremainder)\))?)");
  std::smatch match;
  if (!std::regex_match(text, match, form))
    fail_config("{}: split: '{}' does not have the form train[10%:90%] or train[:5000] (parts joined by +)", where, text);
  if (match[1] != "train") fail_config("{}: split: a file has no split '{}'; all its records are train", where, match[1].str());
  Part part;
  if (match[2].matched) part.from = to_number(match[2]);
  if (match[4].matched) part.to = to_number(match[4]);
  part.percent = match[3].matched || match[5].matched;
  part.whole_hundredths = match[6] == "pct1_dropremainder";
  for (const auto& bound : {part.from, part.to})
    if (part.percent && bound && std::abs(*bound) > 100) fail_config("{}: split: '{}': {}% is beyond 100%", where, text, *bound);
  return part;
}

Split::Split(const std::string& text, const std::string& where) : text_(text), where_(where), parts_() {
  if (text.size() > kLongest) fail_config("{}: split: longer than {} characters", where, kLongest);
  static const std::regex plus(R"(\s*\+\s*)");
  for (std::sregex_token_iterator part(text.begin(), text.end(), plus, -1), end; part != end; ++part)
    parts_.push_back(parse_part(*part, where));
  if (parts_.empty()) fail_config("{}: split is empty; remove it or write train", where);
}

RecordRange Split::Part::range(std::int64_t records) const {
  const auto bound = [&](std::optional<std::int64_t> given, std::int64_t fallback) {
    if (!given) return fallback;
    return clamp_bound(percent ? from_percent(*given, records, whole_hundredths) : *given, records);
  };
  return {bound(from, 0), bound(to, records)};
}

std::vector<RecordRange> Split::ranges(std::int64_t records) const {
  std::vector<RecordRange> ranges;
  for (const Part& part : parts_)
    if (const RecordRange range = part.range(records); range.size() > 0) ranges.push_back(range);
  if (ranges.empty()) fail_config("{}: split: '{}' holds none of the dataset's {} records", where_, text_, records);
  return ranges;
}

}  // namespace qft::encode

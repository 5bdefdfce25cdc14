#include "qft/encode/record_order.h"

#include "qft/core/error.h"

#include <cmath>
#include <numeric>
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

void check_probabilities(const MixOptions& mix, std::size_t datasets) {
  const std::vector<double>& p = mix.probabilities;
  if (p.size() != datasets) fail_config("interleave_probs has {} values for {} datasets", p.size(), datasets);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  if (std::abs(sum - 1.0) > 1e-6) fail_config("interleave_probs sum to {}, not to 1", sum);
  if (mix.strategy != "interleave_under" && *std::min_element(p.begin(), p.end()) <= 0)
    fail_config("interleave_probs: with {} each dataset needs a probability above 0, or interleaving never ends", mix.strategy);
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

std::int64_t RecordOrder::Draw::at(std::int64_t i) const {
  std::int64_t record = records.empty() ? i : records[static_cast<std::size_t>(i)];
  for (const RecordRange& part : parts) {
    if (record < part.size()) return part.from + record;
    record -= part.size();
  }
  return record;
}

RecordOrder::Draw RecordOrder::draw(const DatasetExtent& extent, numpy::LegacyRandom& random) {
  Draw result;
  result.parts = extent.parts;
  result.size = extent.num_samples.value_or(extent.records);
  if (extent.num_samples) {
    result.records = random.permutation(extent.records);
    const std::int64_t more = result.size - extent.records;
    const std::vector<std::int64_t> again = random.choice(extent.records, std::max(more, INT64_C(0)));
    result.records.resize(static_cast<std::size_t>(std::min(result.size, extent.records)));
    result.records.insert(result.records.end(), again.begin(), again.end());
  }
  result.size = extent.taken();
  return result;
}

RecordOrder::RecordOrder(const std::vector<DatasetExtent>& datasets, const MixOptions& mix) {
  numpy::LegacyRandom random(static_cast<std::uint32_t>(mix.seed));
  for (const DatasetExtent& dataset : datasets) draws_.push_back(draw(dataset, random));
  is_interleaved_ = mix.strategy != "concat" && datasets.size() > 1;
  if (is_interleaved_) {
    interleave(mix);
    size_ = static_cast<std::int64_t>(interleaved_.size());
  } else {
    for (const Draw& d : draws_) size_ += d.size;
  }
}

void RecordOrder::interleave(const MixOptions& mix) {
  const std::size_t n = draws_.size();
  const bool in_turns = mix.probabilities.empty();
  const bool under = mix.strategy == "interleave_under", once = mix.strategy == "interleave_once";
  if (!in_turns) check_probabilities(mix, n);
  std::vector<std::int64_t> next(n, 0);
  std::vector<bool> used_up(n, false);
  std::size_t num_used_up = 0;
  numpy::Generator generator(mix.seed);
  for (std::uint64_t i = 0;; ++i) {
    // Without probabilities a started round is finished.
    if ((!in_turns || i % n == 0) && num_used_up >= (under ? 1 : n)) return;
    std::size_t d = static_cast<std::size_t>(i % n);
    if (!in_turns) d = generator.choice(mix.probabilities);
    if (once && used_up[d]) continue;
    interleaved_.push_back({static_cast<std::int32_t>(d), next[d]});
    if (++next[d] == draws_[d].size) {
      next[d] = 0;
      num_used_up += !used_up[d];
      used_up[d] = true;
    }
  }
}

RecordRef RecordOrder::at(std::int64_t position) const {
  QFT_ASSERT(position >= 0 && position < size_, "position {} of {}", position, size_);
  RecordRef ref{0, position};
  if (is_interleaved_)
    ref = interleaved_[static_cast<std::size_t>(position)];
  else
    for (; ref.record >= draws_[static_cast<std::size_t>(ref.dataset)].size; ++ref.dataset)
      ref.record -= draws_[static_cast<std::size_t>(ref.dataset)].size;
  ref.record = draws_[static_cast<std::size_t>(ref.dataset)].at(ref.record);
  return ref;
}

}  // namespace qft::encode

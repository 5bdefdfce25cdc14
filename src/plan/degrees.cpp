#include "degrees.h"

#include "qft/core/units.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

/// More ranks than this share neither matrices nor sequences with profit.
constexpr std::int64_t kMostSharers = 64;
constexpr double kWorthwhile = 1.05;  ///< ratio of speeds

bool is_of(const DegreesRow& row, const Row& taken) {
  return row.tensor == taken.run.sharding.tensor_ranks && row.context == taken.run.sharding.context_ranks;
}

std::string memory_text(const DegreesRow& row) {
  return format_bytes(static_cast<double>(row.needed));
}

}  // namespace

double DegreesRow::tokens_per_second() const {
  return time.step > 0 ? time.tokens / time.step : 0;
}

std::vector<DegreesRow> compare_degrees(int ranks, bool timed, const RowUnder& row_under) {
  std::vector<DegreesRow> all;
  for (std::int64_t tensor = 1; tensor <= std::min<std::int64_t>(ranks, kMostSharers); ++tensor)
    for (std::int64_t context = 1; tensor * context <= std::min<std::int64_t>(ranks, kMostSharers); ++context) {
      if (ranks % (tensor * context) != 0) continue;
      if (const auto row = row_under(tensor, context))
        all.push_back({tensor, context, std::string(row->strategy().name), row->run.fits, row->needed, row->time});
    }
  std::ranges::stable_sort(all, {}, [&](const DegreesRow& row) {
    return std::tuple{!row.fits, timed ? -row.tokens_per_second() : 0.0, row.tensor * row.context};
  });
  return all;
}

const DegreesRow* better_degrees(const std::vector<DegreesRow>& rows, const Row& taken, bool timed) {
  if (rows.empty() || !rows.front().fits || is_of(rows.front(), taken)) return nullptr;
  if (!taken.run.fits) return &rows.front();
  const auto own = std::ranges::find_if(rows, [&](const DegreesRow& row) { return is_of(row, taken); });
  const bool faster = own != rows.end() && timed && rows.front().tokens_per_second() >= kWorthwhile * own->tokens_per_second();
  return faster ? &rows.front() : nullptr;
}

std::string settings_of(const DegreesRow& row) {
  return fmt::format("tensor_parallel={} context_parallel={} strategy={}", row.tensor, row.context, row.strategy);
}

std::string degrees_words(const Verdict& v) {
  if (v.degrees.size() < 2) return {};
  std::string text = "ranks that share matrices x ranks that share sequences, each planned:\n";
  for (const DegreesRow& row : v.degrees) {
    text += fmt::format("  {} x {}{}: {} {} {}", row.tensor, row.context, is_of(row, v.row) ? " (the run)" : "", row.strategy,
                        row.fits ? "takes" : "does not fit with", memory_text(row));
    if (v.step_seconds) {
      text += fmt::format(", {:.0f} tokens/s", row.tokens_per_second());
      for (const auto& [name, bytes, seconds] : {std::tuple{"matrices", row.time.tensor_bytes, row.time.tensor_wait},
                                                 {"sequences", row.time.context_bytes, row.time.context_wait}})
        if (bytes > 0) text += fmt::format("; for {} a step exchanges {} in {:.3g} s", name, format_bytes(bytes), seconds);
    }
    text += "\n";
  }
  if (v.better) text += fmt::format("use {}\n", settings_of(*v.better));
  return text;
}

nlohmann::ordered_json degrees_json(const Verdict& v) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const DegreesRow& row : v.degrees) {
    json.push_back({{"tensor_parallel", row.tensor},
                    {"context_parallel", row.context},
                    {"strategy", row.strategy},
                    {"fits", row.fits},
                    {"memory", row.needed},
                    {"bytes", {{"tensor", row.time.tensor_bytes}, {"context", row.time.context_bytes}}}});
    if (!v.step_seconds) continue;
    json.back()["tokens_per_second"] = row.tokens_per_second();
    json.back()["seconds"] = {{"step", row.time.step}, {"tensor", row.time.tensor_wait}, {"context", row.time.context_wait}};
  }
  return json;
}

}  // namespace qft::plan

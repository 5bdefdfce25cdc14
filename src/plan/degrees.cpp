#include "degrees.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "table.h"
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

/// A column of the table: a heading, and the cell of each row.
template <class Cell>
std::vector<std::string> column(std::string heading, const std::vector<DegreesRow>& rows, const Cell& cell) {
  std::vector<std::string> all = {std::move(heading)};
  for (const DegreesRow& row : rows) all.push_back(cell(row));
  return all;
}

std::string pair_text(std::int64_t tensor, std::int64_t context) {
  return fmt::format("{} x {}", tensor, context);
}

std::string refused_words(const Verdict& v) {
  if (v.refused_degrees.empty()) return {};
  std::string pairs;
  for (const RefusedDegrees& r : v.refused_degrees) pairs += (pairs.empty() ? "" : ", ") + pair_text(r.tensor, r.context);
  return fmt::format("refused: {} ({}{})\n", pairs, v.refused_degrees.size() > 1 ? "the first: " : "",
                     v.refused_degrees.front().reason);
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
  const std::vector<DegreesRow>& rows = v.degrees;
  if (rows.size() + v.refused_degrees.size() < 2) return {};
  double most = 0, memory = 0;
  for (const DegreesRow& row : rows) {
    most = std::max({most, row.time.tensor_bytes, row.time.context_bytes});
    memory = std::max(memory, static_cast<double>(row.needed));
  }
  const Unit exchanged = Unit::of(most), held = Unit::of(memory);
  std::vector<std::vector<std::string>> columns = {
      column("tensor x context", rows,
             [&](const DegreesRow& row) { return pair_text(row.tensor, row.context) + (is_of(row, v.row) ? " *" : ""); }),
      column("strategy", rows, [](const DegreesRow& row) { return row.strategy; }),
      column(fmt::format("memory {}", held.name), rows, [&](const DegreesRow& row) { return held.text(row.needed); })};
  const auto add = [&](bool shown, std::string heading, const auto& cell) {
    if (shown) columns.push_back(column(std::move(heading), rows, cell));
  };
  const bool timed = v.step_seconds.has_value();
  add(v.known, "fits", [](const DegreesRow& row) { return row.fits ? "yes" : "no"; });
  add(timed, "step s", [](const DegreesRow& row) { return row.fits ? seconds_text(row.time.step) : ""; });
  add(timed, "tokens/s", [](const DegreesRow& row) { return row.fits ? fmt::format("{:.0f}", row.tokens_per_second()) : ""; });
  for (const auto& [name, bytes, seconds] : {std::tuple{"tensor", &StepTime::tensor_bytes, &StepTime::tensor_wait},
                                             {"context", &StepTime::context_bytes, &StepTime::context_wait}}) {
    add(true, fmt::format("{} {}", name, exchanged.name),
        [&, part = bytes](const DegreesRow& row) { return exchanged.text(std::round(row.time.*part)); });
    add(timed, fmt::format("{} wait s", name), [part = seconds](const DegreesRow& row) { return seconds_text(row.time.*part); });
  }
  std::string text = "degrees, each planned: ranks that share matrices (tensor) x ranks that share sequences (context)\n" +
                     lay_out(columns, 1) +
                     fmt::format("*: the run; {}: received in the exchanges of a step{}\n", exchanged.name,
                                 timed ? "; wait: compute waits for them" : "");
  text += refused_words(v);
  if (v.better && v.fits) text += fmt::format("use {}\n", settings_of(*v.better));
  return text;
}

nlohmann::ordered_json degrees_json(const Verdict& v) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const DegreesRow& row : v.degrees) {
    json.push_back(
        {{"tensor_parallel", row.tensor},
         {"context_parallel", row.context},
         {"strategy", row.strategy},
         {"run", is_of(row, v.row)},
         {"memory", row.needed},
         {"bytes", {{"tensor", std::llround(row.time.tensor_bytes)}, {"context", std::llround(row.time.context_bytes)}}}});
    json.back()["fits"] = v.known ? nlohmann::ordered_json(row.fits) : nullptr;
    if (!v.step_seconds) continue;
    json.back()["tokens_per_second"] = row.tokens_per_second();
    json.back()["seconds"] = {{"step", row.time.step}, {"tensor", row.time.tensor_wait}, {"context", row.time.context_wait}};
  }
  return json;
}

}  // namespace qft::plan

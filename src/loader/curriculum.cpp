#include "qft/loader/curriculum.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace qft::loader {
namespace {

using nlohmann::json;

CurriculumTable default_table() {
  return {{"explain", "reasoning", "topology"}, {{0.3, {0.8, 0.2, 0.0}}, {0.7, {0.4, 0.4, 0.2}}, {1.0, {0.25, 0.35, 0.4}}}};
}

double number_of(const json& value, std::string_view what) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
    fail_config("curriculum: {}: expected a number of at least 0, got {}", what, value.dump());
  return value.get<double>();
}

const json& member(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key))
    fail_config("curriculum: expected {{levels: [...], stages: [{{until: percent, shares: [...]}}, ...]}}, '{}' is missing", key);
  return object[key];
}

const json& list_of(const json& object, const char* key) {
  const json& value = member(object, key);
  if (!value.is_array() || value.empty()) fail_config("curriculum: {}: expected a list, got {}", key, value.dump());
  return value;
}

CurriculumStage parse_stage(const json& value, std::size_t levels) {
  CurriculumStage stage;
  stage.until = number_of(member(value, "until"), "until") / 100;
  for (const json& share : list_of(value, "shares")) stage.shares.push_back(number_of(share, "shares"));
  if (stage.shares.size() != levels)
    fail_config("curriculum: the stage until {} % has {} shares for {} levels", stage.until * 100, stage.shares.size(), levels);
  const double sum = std::accumulate(stage.shares.begin(), stage.shares.end(), 0.0);
  if (sum <= 0) fail_config("curriculum: the stage until {} % takes nothing: all shares are 0", stage.until * 100);
  for (double& share : stage.shares) share /= sum;
  return stage;
}

}  // namespace

CurriculumTable parse_curriculum(const json& value) {
  if (value.is_null()) return default_table();
  CurriculumTable table;
  for (const json& level : list_of(value, "levels")) {
    if (!level.is_string()) fail_config("curriculum: levels: expected texts, got {}", level.dump());
    table.levels.push_back(level.get<std::string>());
  }
  if (std::set<std::string>(table.levels.begin(), table.levels.end()).size() != table.levels.size())
    fail_config("curriculum: levels: a level is named twice in {}", json(table.levels).dump());
  double last = 0;
  for (const json& stage : list_of(value, "stages")) {
    table.stages.push_back(parse_stage(stage, table.levels.size()));
    const double until = table.stages.back().until;
    if (until <= last || until > 1)
      fail_config("curriculum: stages: until is {} % after {} %: it must rise up to 100", until * 100, last * 100);
    last = until;
  }
  if (last != 1) fail_config("curriculum: stages: the last one ends at {} %: it must end at 100", last * 100);
  return table;
}

CurriculumPlan::CurriculumPlan(CurriculumTable table, std::vector<std::int64_t> pool_sizes, std::int64_t total_steps,
                               std::int64_t units_per_step)
    : table_(std::move(table)), pool_sizes_(std::move(pool_sizes)), total_steps_(total_steps), units_per_step_(units_per_step) {
  QFT_ASSERT(pool_sizes_.size() == num_levels(), "{} pools for {} levels", pool_sizes_.size(), num_levels());
  for (const CurriculumStage& stage : table_.stages)
    for (std::size_t l = 0; l < num_levels(); ++l)
      if (stage.shares[l] > 0 && pool_sizes_[l] == 0)
        fail_config(
            "curriculum: the stage until {} % takes {:.3g} % of '{}', but no sample has that level: give it share 0, or "
            "name the levels that the data has",
            stage.until * 100, stage.shares[l] * 100, table_.levels[l]);
  taken_.assign(num_levels(), 0);
  taken_.reserve(static_cast<std::size_t>(total_steps_ + 1) * num_levels());
  std::vector<double> owed(num_levels(), 0.0);
  for (std::int64_t step = 0; step < total_steps_; ++step) plan_step(step, owed);
}

// Largest remainder over the units owed to each level so far: meets the shares of a stage to within one unit.
void CurriculumPlan::plan_step(std::int64_t step, std::vector<double>& owed) {
  const std::size_t stage = stage_of(step);
  const std::vector<double>& shares = table_.stages[stage].shares;
  if (step > 0 && stage != stage_of(step - 1)) std::fill(owed.begin(), owed.end(), 0.0);
  std::vector<std::int64_t> counts(num_levels());
  std::int64_t rest = units_per_step_;
  for (std::size_t l = 0; l < num_levels(); ++l) {
    owed[l] += shares[l] * static_cast<double>(units_per_step_);
    counts[l] = std::clamp(static_cast<std::int64_t>(std::floor(owed[l] + 1e-9)), INT64_C(0), rest);
    rest -= counts[l];
    owed[l] -= static_cast<double>(counts[l]);
  }
  for (; rest > 0; --rest) {
    std::size_t most = num_levels();
    for (std::size_t l = 0; l < num_levels(); ++l)
      if (shares[l] > 0 && (most == num_levels() || owed[l] > owed[most])) most = l;
    ++counts[most];
    owed[most] -= 1;
  }
  for (std::size_t l = 0; l < num_levels(); ++l) taken_.push_back(taken_[taken_.size() - num_levels()] + counts[l]);
}

std::int64_t CurriculumPlan::taken_before(std::int64_t step, std::size_t level) const {
  return taken_[static_cast<std::size_t>(step) * num_levels() + level];
}

std::size_t CurriculumPlan::stage_of(std::int64_t step) const {
  const double progress = static_cast<double>(step) / static_cast<double>(total_steps_);
  std::size_t stage = 0;
  while (stage + 1 < table_.stages.size() && progress >= table_.stages[stage].until - 1e-12) ++stage;
  return stage;
}

std::pair<std::int64_t, std::int64_t> CurriculumPlan::steps_of(std::size_t stage) const {
  const auto begin_of = [&](std::size_t s) {
    if (s == 0) return INT64_C(0);
    const double until = table_.stages[s - 1].until - 1e-12;
    return std::min(total_steps_, static_cast<std::int64_t>(std::ceil(until * static_cast<double>(total_steps_))));
  };
  return {begin_of(stage), stage + 1 == table_.stages.size() ? total_steps_ : begin_of(stage + 1)};
}

std::string CurriculumPlan::describe(std::size_t stage) const {
  const auto [first, end] = steps_of(stage);
  const double from = stage == 0 ? 0 : table_.stages[stage - 1].until, until = table_.stages[stage].until;
  if (first >= end) return fmt::format("curriculum, {:.3g}-{:.3g} %: no steps", from * 100, until * 100);
  std::string text = fmt::format("curriculum, {:.3g}-{:.3g} %, steps {}-{}:", from * 100, until * 100, first + 1, end);
  const auto all = static_cast<double>((end - first) * units_per_step_);
  for (std::size_t l = 0; l < num_levels(); ++l) {
    const std::int64_t taken = taken_before(end, l) - taken_before(first, l);
    text += fmt::format("{} {} {:.1f} % (asked {:.1f} %; {} of {}{})", l == 0 ? "" : ",", table_.levels[l],
                        100 * static_cast<double>(taken) / all, 100 * table_.stages[stage].shares[l], taken, pool_sizes_[l],
                        taken > pool_sizes_[l] ? ", repeated" : "");
  }
  return text;
}

}  // namespace qft::loader

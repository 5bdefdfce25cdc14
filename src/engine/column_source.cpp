#include "qft/engine/column_source.h"

#include "qft/engine/objectives.h"

namespace qft::engine {
namespace {

constexpr const char* kMeans = "means";

nlohmann::json to_json(const RunningMean& mean) {
  return {{"mean", mean.mean}, {"steps", mean.steps}};
}

RunningMean mean_from_json(const nlohmann::json& json) {
  return {json.at("mean").get<double>(), json.at("steps").get<std::int64_t>()};
}

}  // namespace

// The mean reward has a key of its own, which is always there: checkpoints of earlier versions have it.
void write_state(const SourceState& state, nlohmann::json& progress) {
  progress[totals::kReward] = to_json(RunningMean());
  for (const auto& [name, mean] : state.means)
    (name == totals::kReward ? progress[name] : progress[kMeans][name]) = to_json(mean);
}

SourceState source_state_from_json(const nlohmann::json& progress) {
  SourceState state;
  if (const auto reward = progress.find(totals::kReward); reward != progress.end())  // absent in older checkpoints
    if (const RunningMean mean = mean_from_json(*reward); mean.steps > 0) state.means.emplace(totals::kReward, mean);
  if (const auto others = progress.find(kMeans); others != progress.end())
    for (const auto& [name, mean] : others->items()) state.means.emplace(name, mean_from_json(mean));
  return state;
}

}  // namespace qft::engine

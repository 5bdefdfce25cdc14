#include "qft/train/best_model.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::train {

void BestModel::observe(double value, std::int64_t at_step, bool greater_is_better) {
  const auto beats = [&](const Measured& other) { return greater_is_better ? value > other.metric : value < other.metric; };
  const Measured now{value, at_step};
  latest.reset();
  if (std::isfinite(value) && (checkpoint.empty() || beats(at_checkpoint))) latest = now;
  if (!std::isfinite(value) || (evaluation && !beats(*evaluation))) {
    ++evaluations_since;
    return;
  }
  evaluation = now;
  evaluations_since = 0;
}

void BestModel::saved(const std::string& name, std::int64_t saved_step) {
  if (!latest || latest->step != saved_step) return;
  checkpoint = name;
  at_checkpoint = *latest;
}

nlohmann::json to_json(const BestModel& best) {
  const auto& e = best.evaluation;
  nlohmann::json json = {{"metric", e ? nlohmann::json(e->metric) : nlohmann::json()},
                         {"step", e ? e->step : 0},
                         {"name", best.metric},
                         {"evaluations_since", best.evaluations_since},
                         {"checkpoint", best.checkpoint}};
  if (!best.checkpoint.empty())
    json["at_checkpoint"] = {{"metric", best.at_checkpoint.metric}, {"step", best.at_checkpoint.step}};
  return json;
}

BestModel best_from_json(const nlohmann::json& json) {
  BestModel best;
  best.metric = json.value("name", best.metric);  // earlier versions only knew the loss
  if (!json.at("metric").is_null()) best.evaluation = {json["metric"].get<double>(), json.at("step").get<std::int64_t>()};
  best.evaluations_since = json.at("evaluations_since").get<std::int64_t>();
  best.checkpoint = json.at("checkpoint").get<std::string>();
  if (json.contains("at_checkpoint")) {
    const auto& at = json["at_checkpoint"];
    if (at.at("metric").is_null())
      best.checkpoint.clear();  // JSON has no infinity: such a value is not the best
    else
      best.at_checkpoint = {at["metric"].get<double>(), at.at("step").get<std::int64_t>()};
  } else if (best.evaluation && best.checkpoint.ends_with("-" + std::to_string(best.evaluation->step))) {
    best.at_checkpoint = *best.evaluation;  // earlier versions had one record for both
  } else {
    best.checkpoint.clear();
  }
  return best;
}

}  // namespace qft::train

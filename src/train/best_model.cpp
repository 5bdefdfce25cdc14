#include "qft/train/best_model.h"

#include <cmath>

namespace qft::train {

void BestModel::observe(double value, std::int64_t at_step, bool greater_is_better) {
  const bool better = !std::isnan(value) && (!metric || (greater_is_better ? value > *metric : value < *metric));
  if (!better) {
    ++evaluations_since;
    return;
  }
  metric = value;
  step = at_step;
  evaluations_since = 0;
}

void BestModel::saved(const std::string& name, std::int64_t saved_step) {
  if (metric && saved_step == step) checkpoint = name;
}

}  // namespace qft::train

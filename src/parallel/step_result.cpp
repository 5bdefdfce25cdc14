#include "qft/parallel/step_result.h"

#include "qft/core/activity.h"
#include "qft/core/units.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/stack.h>

namespace qft::parallel {
namespace {

/// Returns the sums on the host, one micro-batch after the other.
std::vector<double> values_of(const std::vector<at::Tensor>& sums) {
  if (sums.empty()) return {};
  const activity::Waiting waiting(activity::Wait::device);
  const at::Tensor all = at::stack(sums).cpu();
  const double* values = all.const_data_ptr<double>();
  return {values, values + all.numel()};
}

/// Adds up the micro-batches' sums, column by column.
std::vector<double> columns(std::span<const double> sums, std::size_t width) {
  std::vector<double> totals(width);
  for (std::size_t i = 0; i < sums.size(); ++i) totals[i % width] += sums[i];
  return totals;
}

std::size_t width_of(const Objective& objective) {
  return 1 + 2 * objective.metrics().size();
}

}  // namespace

Score compute_score(const Objective& objective, std::span<const double> sums) {
  const std::vector<double> totals = columns(sums, width_of(objective));
  Score score{totals[0]};
  for (std::size_t m = 0; m < objective.metrics().size(); ++m)
    if (const double count = totals[2 + 2 * m]; count > 0)
      score.metrics[std::string(objective.metrics()[m])] = unsigned_nan(totals[1 + 2 * m] / count);
  score.added = objective.summarise(score.metrics);
  return score;
}

StepResult combine_shares(const StepShare& share, const Objective& objective, const MicroRange& range, const Groups& groups) {
  const std::size_t width = width_of(objective), units = share.grad_square_sums.size();
  std::vector<double> agreed(2 + units + width * static_cast<std::size_t>(std::max<std::int64_t>(range.total, 1)));
  agreed[0] = share.seconds;
  agreed[1] = share.stop_requested ? 1.0 : 0.0;
  const std::span squares = std::span(agreed).subspan(2, units), sums = std::span(agreed).subspan(2 + units);
  std::ranges::copy(share.grad_square_sums, squares.begin());
  if (groups.is_lead()) {
    std::vector<double> values = values_of(share.sums);
    for (std::size_t i = 0; i < values.size(); i += width) values[i] /= objective.denominator();
    if (range.total > 0) {  // each micro-batch has its own place; the other ranks add zeros there
      std::ranges::copy(values, sums.begin() + range.first * static_cast<std::int64_t>(width));
    } else {
      std::ranges::copy(columns(values, width), sums.begin());
    }
  }
  groups.all().all_reduce(agreed.data(), agreed.size(), DType::f64);
  Score score = compute_score(objective, sums);
  const double loss = score.loss + score.added, square_sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  return {.loss = unsigned_nan(loss),
          .metrics = std::move(score.metrics),
          .grad_norm = unsigned_nan(std::sqrt(square_sum) / share.loss_scale),
          .finite = std::isfinite(square_sum) && std::isfinite(loss),
          .stop_requests = static_cast<int>(agreed[1]),
          .seconds = agreed[0] / groups.all().size()};
}

}  // namespace qft::parallel

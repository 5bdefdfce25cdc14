#include "qft/engine/step_inputs.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

namespace qft::engine {

void Estimate::reduce_kl(comm::Communicator& comm, parallel::BatchTotals& totals) {
  const std::vector<double> sums = sums_.all_reduce(comm);
  totals.kl = sums[0] < 0.0 || sums[1] == 0.0 ? 0.0 : sums[0] / sums[1];  // NaN stays NaN
  totals.desirable = sums[2];
  totals.tokens = sums[3];
}

void Estimate::reduce_reward(comm::Communicator& comm, parallel::BatchTotals& totals) {
  const std::vector<double> sums = sums_.all_reduce(comm);
  totals.reward = sums[1] == 0.0 ? 0.0 : sums[0] / sums[1];
}

bool StepInputs::compares_rewards() const {
  return engine::compares_rewards(config_);
}

void StepInputs::reduce_estimate(Estimate& estimate, comm::Communicator& comm, parallel::BatchTotals& totals) const {
  row_.estimates_kl ? estimate.reduce_kl(comm, totals) : estimate.reduce_reward(comm, totals);
}

void StepInputs::estimate(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first,
                          Estimate& estimate) {
  row_.estimates_kl ? estimate_kl(batches, rounds, first, estimate)
                    : estimate_rewards(build(batches, rounds, 0), rounds, first, estimate);
}

void StepInputs::fill_totals(parallel::BatchTotals& totals, const loader::StepBatch& batch, comm::Communicator& comm) {
  if (estimates()) {
    Estimate before(batch.global_micro_batches);
    if (row_.estimates_kl) {
      estimate_kl(batch.micro_batches, batch.max_micro_batches, batch.first_micro_batch, before);
    } else {
      scored_inputs_ = build(batch.micro_batches, batch.max_micro_batches, 0);
      estimate_rewards(*scored_inputs_, batch.max_micro_batches, batch.first_micro_batch, before);
    }
    reduce_estimate(before, comm, totals);
  }
  if (!counts_chosen_) return;
  std::int64_t labels = 0;
  for (const loader::MicroBatch& micro : batch.micro_batches)
    labels += static_cast<std::int64_t>(loader::sequences_of(micro, 0).label_positions.size());
  totals.first_labels = static_cast<double>(comm::all_reduce_value(comm, labels, comm::ReduceOp::sum));
}

std::vector<model::MicroInput> StepInputs::build(std::span<const loader::MicroBatch> batches, std::int64_t rounds,
                                                 std::int32_t sequence) {
  std::vector<loader::MicroBatch> parts;
  if (row_.estimates_kl)
    for (const loader::MicroBatch& batch : batches) parts.push_back(loader::sequences_of(batch, sequence));
  const std::span<const loader::MicroBatch> taken = row_.estimates_kl ? parts : batches;
  std::vector<model::MicroInput> inputs;
  for (const loader::MicroBatch& batch : taken) inputs.push_back(instance_.input(batch));
  if (reference_ != nullptr) reference_->score(taken, inputs, rounds);
  return inputs;
}

std::vector<model::MicroInput> StepInputs::inputs(std::span<const loader::MicroBatch> batches, std::int64_t rounds) {
  if (scored_inputs_) return *std::exchange(scored_inputs_, std::nullopt);
  return build(batches, rounds, 0);
}

void StepInputs::estimate_kl(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first,
                             Estimate& estimate) {
  const auto inputs = build(batches, rounds, 1);
  std::vector<at::Tensor> sums;
  instance_.executor().evaluate(instance_.evaluation_list(static_cast<int>(inputs.size()), static_cast<int>(rounds)), inputs,
                                [&](const parallel::Logprobs& p) {
                                  sums.push_back((parallel::sequence_sums(inputs[sums.size()], p.policy) - p.reference).sum());
                                });
  if (sums.empty()) return;
  const at::Tensor all = at::stack(sums).cpu();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto& desirable = batches[i].desirable;
    const std::size_t trained = batches[i].tokens.size() - static_cast<std::size_t>(inputs[i].num_tokens());
    estimate.add(first + static_cast<std::int64_t>(i), all.const_data_ptr<double>()[i], static_cast<double>(desirable.size()),
                 std::accumulate(desirable.begin(), desirable.end(), 0.0), static_cast<double>(trained));
  }
}

void StepInputs::estimate_rewards(std::span<const model::MicroInput> scored, std::int64_t rounds, std::int64_t first,
                                  Estimate& estimate) {
  // The objective's own reward metrics, each a sum and a count.
  const auto objective = row_.make(config_, {.items = 1.0});
  const auto names = objective->metrics();
  const auto at = [&](std::string_view name) { return 1 + 2 * (std::ranges::find(names, name) - names.begin()); };
  const std::int64_t chosen = at("rewards/chosen"), rejected = at("rewards/rejected");
  std::vector<at::Tensor> sums;
  instance_.executor().evaluate(
      instance_.evaluation_list(static_cast<int>(scored.size()), static_cast<int>(rounds)), scored,
      [&](const parallel::Logprobs& p) { sums.push_back(objective->observe(scored[sums.size()], p, {})); }, objective.get());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const at::Tensor of = sums[i].cpu();
    const double* v = of.const_data_ptr<double>();
    estimate.add(first + static_cast<std::int64_t>(i), v[chosen] + v[rejected], v[chosen + 1] + v[rejected + 1], 0.0, 0.0);
  }
}

}  // namespace qft::engine

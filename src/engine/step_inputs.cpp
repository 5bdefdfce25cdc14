#include "qft/engine/step_inputs.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

namespace qft::engine {

void KlEstimate::add(std::int64_t index, double log_ratios, double sequences, double liked, double tokens) {
  const std::size_t at = kWidth * static_cast<std::size_t>(index);
  QFT_ASSERT(at + kWidth <= sums_.size(), "micro-batch {} of {}", index, sums_.size() / kWidth);
  sums_[at] = log_ratios, sums_[at + 1] = sequences, sums_[at + 2] = liked, sums_[at + 3] = tokens;
}

void KlEstimate::agree(comm::Communicator& comm, parallel::BatchTotals& totals) {
  comm.host().all_reduce(sums_.data(), sums_.size(), DType::f64);  // each has a place of its own: zeros change nothing
  double log_ratios = 0.0, sequences = 0.0;
  totals.liked = totals.tokens = 0.0;
  for (std::size_t at = 0; at < sums_.size(); at += kWidth)
    log_ratios += sums_[at], sequences += sums_[at + 1], totals.liked += sums_[at + 2], totals.tokens += sums_[at + 3];
  totals.kl = log_ratios < 0.0 || sequences == 0.0 ? 0.0 : log_ratios / sequences;  // what is no number stays none
}

void StepInputs::complete(parallel::BatchTotals& totals, const loader::StepBatch& batch, comm::Communicator& comm) {
  if (row_.estimates_kl) {
    KlEstimate estimate(batch.global_micro_batches);
    estimate_kl(batch.micro_batches, batch.max_micro_batches, batch.first_micro_batch, estimate);
    estimate.agree(comm, totals);
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
  return build(batches, rounds, 0);
}

void StepInputs::estimate_kl(std::span<const loader::MicroBatch> batches, std::int64_t rounds, std::int64_t first,
                             KlEstimate& estimate) {
  const auto inputs = build(batches, rounds, 1);
  std::vector<at::Tensor> sums;
  instance_.executor().evaluate(instance_.evaluation_list(static_cast<int>(inputs.size()), static_cast<int>(rounds)), inputs,
                                [&](const parallel::Logprobs& p) {
                                  sums.push_back((parallel::sequence_sums(inputs[sums.size()], p.policy) - p.reference).sum());
                                });
  if (sums.empty()) return;
  const at::Tensor all = at::stack(sums).cpu();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto& liked = batches[i].liked;
    const std::size_t trained = batches[i].tokens.size() - static_cast<std::size_t>(inputs[i].num_tokens());
    estimate.add(first + static_cast<std::int64_t>(i), all.const_data_ptr<double>()[i], static_cast<double>(liked.size()),
                 std::accumulate(liked.begin(), liked.end(), 0.0), static_cast<double>(trained));
  }
}

}  // namespace qft::engine

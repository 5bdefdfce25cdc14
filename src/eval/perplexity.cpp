#include "qft/eval/perplexity.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/engine/objectives.h"
#include "qft/engine/step_inputs.h"
#include "qft/parallel/step_result.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "forward_pass.h"

namespace qft::eval {
namespace {

/// A pass of its own, before that which scores.
void estimate_kl(engine::StepInputs& step, loader::EvalLoader& loader, comm::Communicator& comm, parallel::BatchTotals& totals) {
  engine::KlEstimate estimate(loader.max_micro_batches() * comm.size());
  loader.rewind();
  for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
    const loader::MicroBatch batch = loader.next().value();
    step.estimate_kl(std::span(&batch, batch.tokens.empty() ? 0 : 1), 1, round * comm.size() + comm.rank(), estimate);
  }
  estimate.agree(comm, totals);
}

}  // namespace

std::string PerplexityResult::scores() const {
  std::string text = fmt::format("eval_loss {:.4f}", loss);
  if (perplexity) text += fmt::format("  perplexity {:.3f}", *perplexity);
  for (const auto& [name, value] : metrics) text += fmt::format("  {} {:.4f}", name, value);
  return text;
}

PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::ReferenceModel* reference,
                          loader::EvalLoader& loader, comm::Communicator& comm, const HeadValues& values,
                          const std::function<void(std::int64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  engine::StepInputs step(config, instance, reference);
  parallel::BatchTotals totals{static_cast<double>(loader.global_label_tokens()), static_cast<double>(loader.num_items()),
                               static_cast<double>(loader.global_tokens())};
  if (step.estimates_kl()) estimate_kl(step, loader, comm, totals);
  const engine::ObjectiveRow& row = engine::objective_of(config);
  const auto objective = row.make(config, totals);
  const std::size_t width = 1 + 2 * objective->metrics().size();
  // Each micro-batch has a place of its own, so that sums are the same on any number of ranks.
  std::vector<double> sums(width * static_cast<std::size_t>(loader.max_micro_batches() * comm.size()));
  const auto observe = [&](const model::MicroInput& in, const parallel::Logprobs& logprobs, std::int64_t round) {
    const at::Tensor mine = objective->observe(in, logprobs, {}).cpu();
    std::copy_n(mine.const_data_ptr<double>(), width,
                sums.begin() + static_cast<std::ptrdiff_t>(width) * (round * comm.size() + comm.rank()));
  };
  const auto inputs = [&](std::span<const loader::MicroBatch> batches) { return step.inputs(batches, 1); };
  forward_pass(instance, loader, inputs, observe, values, progress);
  comm.all_reduce(sums.data(), sums.size(), DType::f64);
  const parallel::Score score = parallel::add_up(*objective, sums);
  const double loss = plain_nan(score.loss / objective->denominator());
  return {.loss = loss,
          .perplexity = row.name == "cross_entropy" ? std::optional(std::exp(loss)) : std::nullopt,
          .metrics = score.metrics,
          .label_tokens = loader.global_label_tokens(),
          .tokens = loader.global_tokens(),
          .items = loader.num_items(),
          .steps = loader.max_micro_batches(),
          .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

}  // namespace qft::eval

#include "qft/eval/perplexity.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/engine/objectives.h"
#include "qft/engine/step_inputs.h"
#include "qft/parallel/step_result.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

/// One JSON line for each sequence of a micro-batch.
std::string describe(const loader::MicroBatch& batch, const at::Tensor& logprobs) {
  std::string text;
  const float* values = logprobs.const_data_ptr<float>();
  std::size_t label = 0;
  for (std::size_t s = 0; s + 1 < batch.cu_seqlens.size(); ++s) {
    const std::int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    nlohmann::ordered_json line = {{"ids", std::vector<std::int32_t>(batch.tokens.begin() + begin, batch.tokens.begin() + end)},
                                   {"positions", nlohmann::ordered_json::array()},
                                   {"logprobs", nlohmann::ordered_json::array()}};
    for (; label < batch.label_positions.size() && batch.label_positions[label] < end; ++label) {
      line["positions"].push_back(batch.label_positions[label] - begin);
      line["logprobs"].push_back(values[label]);
    }
    text += line.dump() + "\n";
  }
  return text;
}

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
                          loader::EvalLoader& loader, comm::Communicator& comm, const std::filesystem::path& logprobs_file,
                          const std::function<void(std::int64_t)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  const bool write = !logprobs_file.empty();
  std::ofstream out;
  comm::agreed(comm, [&] {
    if (!write || comm.rank() != 0) return;
    out.open(logprobs_file);
    require(out.good(), "cannot write predict_logprobs '{}'", logprobs_file.string());
  });
  engine::StepInputs step(config, instance, reference);
  parallel::BatchTotals totals{static_cast<double>(loader.global_label_tokens()), static_cast<double>(loader.num_items()),
                               static_cast<double>(loader.global_tokens())};
  if (step.estimates_kl()) estimate_kl(step, loader, comm, totals);
  const engine::ObjectiveRow& row = engine::objective_of(config);
  const auto objective = row.make(config, totals);
  const std::size_t width = 1 + 2 * objective->metrics().size();
  // Each micro-batch has a place of its own, so that sums are the same on any number of ranks.
  std::vector<double> sums(width * static_cast<std::size_t>(loader.max_micro_batches() * comm.size()));
  const auto work = instance.evaluation_list(1, 1);
  const auto idle = instance.evaluation_list(0, 1);
  loader.rewind();
  for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
    const loader::MicroBatch batch = loader.next().value();
    const bool has_work = !batch.tokens.empty();
    const auto inputs = step.inputs(std::span(&batch, has_work ? 1 : 0), 1);
    at::Tensor kept;  // log-probabilities, where they are written
    instance.executor().evaluate(has_work ? work : idle, inputs, [&](const parallel::Logprobs& logprobs) {
      const at::Tensor mine = objective->observe(inputs.front(), logprobs, {}).cpu();
      std::copy_n(mine.const_data_ptr<double>(), width,
                  sums.begin() + static_cast<std::ptrdiff_t>(width) * (round * comm.size() + comm.rank()));
      if (write) kept = logprobs.policy.to(at::kCPU, at::kFloat, false, true);
    });
    if (write) {
      // Rank r's micro-batch of a round precedes rank r + 1's in source order.
      for (const auto& text : comm::all_gather_strings(comm, has_work ? describe(batch, kept) : ""))
        if (comm.rank() == 0) out << text;
    }
    if (progress) progress(round + 1);
  }
  if (write && comm.rank() == 0) {
    out.close();
    require(!out.fail(), "cannot write predict_logprobs '{}': is the disk full?", logprobs_file.string());
  }
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

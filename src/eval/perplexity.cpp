#include "qft/eval/perplexity.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/engine/objectives.h"
#include "qft/loader/loader.h"
#include "qft/parallel/step_result.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>

#include "accuracy.h"
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

/// The mean -log p of a label, where an objective weighs labels.
constexpr const char* kNll = "token/nll";

std::unique_ptr<parallel::Objective> objective_for(const config::RunConfig& config, const Likelihood& counts) {
  const engine::ObjectiveRow& row = engine::objective_of(config);
  auto objective = row.make(
      config, {static_cast<double>(counts.label_tokens), static_cast<double>(counts.items), static_cast<double>(counts.tokens)});
  const bool answers = config.finetuning.stage == "sft" || config.finetuning.stage == "pt";
  if (!config.finetuning.compute_accuracy || !answers) return objective;
  return std::make_unique<WithAccuracy>(std::move(objective));
}

/// What a pass over a set counts; no score yet.
struct Counted {
  Likelihood counts;
  std::vector<double> sums;  ///< of all micro-batches, one after the other, as Objective::observe() returns them
};

Likelihood score(const config::RunConfig& config, const Counted& counted) {
  const auto objective = objective_for(config, counted.counts);
  const parallel::Score score = parallel::add_up(*objective, counted.sums);
  Likelihood result = counted.counts;
  result.loss = plain_nan(score.loss / objective->denominator());
  result.metrics = score.metrics;
  if (engine::objective_of(config).name == "cross_entropy") result.perplexity = std::exp(result.loss);
  if (const auto nll = score.metrics.find(kNll); nll != score.metrics.end()) result.perplexity = std::exp(nll->second);
  return result;
}

/// Passes over sets, whose log-probabilities go to one file.
class Pass {
 public:
  Pass(const config::RunConfig& config, engine::Instance& instance, comm::Communicator& comm, const std::filesystem::path& file)
      : config_(config), instance_(instance), comm_(comm), file_(file) {
    comm::agreed(comm_, [&] {
      if (!writes() || comm_.rank() != 0) return;
      out_.open(file_);
      require(out_.good(), "cannot write predict_logprobs '{}'", file_.string());
    });
  }

  Counted over(loader::EvalLoader& loader, Progress& bar);

  void close() {
    if (!writes() || comm_.rank() != 0) return;
    out_.close();
    require(!out_.fail(), "cannot write predict_logprobs '{}': is the disk full?", file_.string());
  }

 private:
  bool writes() const { return !file_.empty(); }

  const config::RunConfig& config_;
  engine::Instance& instance_;
  comm::Communicator& comm_;
  std::filesystem::path file_;
  std::ofstream out_;
  std::int64_t rounds_ = 0;
};

Counted Pass::over(loader::EvalLoader& loader, Progress& bar) {
  const double started = steady_seconds();
  Counted counted{{.label_tokens = loader.global_label_tokens(),
                   .tokens = loader.global_tokens(),
                   .items = loader.num_items(),
                   .steps = loader.max_micro_batches()},
                  {}};
  const auto objective = objective_for(config_, counted.counts);
  const std::size_t width = 1 + 2 * objective->metrics().size();
  // Each micro-batch has a place of its own, so that sums are the same on any number of ranks.
  counted.sums.resize(width * static_cast<std::size_t>(loader.max_micro_batches() * comm_.size()));
  const auto work = instance_.evaluation_list(1, 1);
  const auto idle = instance_.evaluation_list(0, 1);
  loader.rewind();
  for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
    const loader::MicroBatch batch = loader.next().value();
    const bool has_work = !batch.tokens.empty();
    std::vector<model::MicroInput> inputs;
    if (has_work) inputs.push_back(instance_.input(batch));
    at::Tensor kept;  // log-probabilities, where they are written
    const auto observe = [&](const parallel::Logprobs& logprobs) {
      const at::Tensor mine = objective->observe(inputs.front(), logprobs, {}).cpu();
      std::copy_n(mine.const_data_ptr<double>(), width,
                  counted.sums.begin() + static_cast<std::ptrdiff_t>(width) * (round * comm_.size() + comm_.rank()));
      if (writes()) kept = logprobs.policy.to(at::kCPU, at::kFloat, false, true);
    };
    instance_.executor().evaluate(has_work ? work : idle, inputs, observe, objective.get());
    if (writes()) {
      // Rank r's micro-batch of a round precedes rank r + 1's in source order.
      for (const auto& text : comm::all_gather_strings(comm_, has_work ? describe(batch, kept) : ""))
        if (comm_.rank() == 0) out_ << text;
    }
    bar.update(++rounds_);
  }
  comm_.all_reduce(counted.sums.data(), counted.sums.size(), DType::f64);
  counted.counts.seconds = steady_seconds() - started;
  return counted;
}

/// Of all sets together.
Counted joined(const std::vector<Counted>& parts) {
  Counted whole;
  for (const Counted& part : parts) {
    whole.counts.label_tokens += part.counts.label_tokens;
    whole.counts.tokens += part.counts.tokens;
    whole.counts.items += part.counts.items;
    whole.counts.steps += part.counts.steps;
    whole.counts.seconds += part.counts.seconds;
    whole.sums.insert(whole.sums.end(), part.sums.begin(), part.sums.end());
  }
  return whole;
}

}  // namespace

std::string Likelihood::scores() const {
  std::string text = fmt::format("eval_loss {:.4f}", loss);
  if (perplexity) text += fmt::format("  perplexity {:.3f}", *perplexity);
  for (const auto& [name, value] : metrics) text += fmt::format("  {} {:.4f}", name, value);
  return text;
}

std::string PerplexityResult::scores() const {
  std::string text = Likelihood::scores();
  for (const auto& [name, part] : by_dataset) text += fmt::format("  eval_{}_loss {:.4f}", name, part.loss);
  return text;
}

PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, const engine::EvalSet& set,
                          comm::Communicator& comm, const std::filesystem::path& logprobs_file, bool shows_progress) {
  engine::require_reference(config, instance.spec());
  std::vector<std::pair<std::string, engine::EvalSet>> sets;
  comm::agreed(comm, [&] {
    if (config.data.eval_on_each_dataset)
      sets = set.by_dataset();
    else
      sets.emplace_back("", set);
  });
  std::vector<std::unique_ptr<loader::EvalLoader>> loaders;
  std::int64_t rounds = 0;
  for (const auto& [name, part] : sets) rounds += loaders.emplace_back(part.loader(config, comm))->max_micro_batches();
  Progress bar("eval", rounds, shows_progress && comm.rank() == 0);
  Pass pass(config, instance, comm, logprobs_file);
  std::vector<Counted> parts;
  for (const auto& loader : loaders) parts.push_back(pass.over(*loader, bar));
  pass.close();
  PerplexityResult result{score(config, joined(parts)), {}};
  for (std::size_t s = 0; config.data.eval_on_each_dataset && s < sets.size(); ++s)
    result.by_dataset.emplace_back(sets[s].first, score(config, parts[s]));
  return result;
}

std::vector<std::string> metric_names(const config::RunConfig& config) {
  const auto objective = objective_for(config, {});
  return {objective->metrics().begin(), objective->metrics().end()};
}

}  // namespace qft::eval

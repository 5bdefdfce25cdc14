#include "qft/eval/perplexity.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/core/units.h"
#include "qft/engine/objectives.h"
#include "qft/engine/step_inputs.h"
#include "qft/loader/loader.h"
#include "qft/parallel/step_result.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <ranges>

#include "accuracy.h"
#include "forward_pass.h"

namespace qft::eval {
namespace {

/// Metric with the mean -log p of a label, reported by objectives that weight labels.
constexpr const char* kNll = "token/nll";

/// Returns the totals that are known before any pass over the set.
parallel::BatchTotals totals_of(const Likelihood& counts, bool weighted) {
  parallel::BatchTotals totals{static_cast<double>(counts.label_tokens), static_cast<double>(counts.items),
                               static_cast<double>(counts.tokens)};
  totals.weighted = weighted;
  return totals;
}

std::unique_ptr<parallel::Objective> objective_for(const config::RunConfig& config, const parallel::BatchTotals& totals) {
  auto objective = engine::objective_of(config).make(config, totals);
  if (!config.finetuning.compute_accuracy || !config.stage().label_mean) return objective;
  return std::make_unique<AccuracyObjective>(std::move(objective));
}

/// Counts and sums of a pass over a set, before scoring.
struct PassResult {
  Likelihood counts;
  parallel::BatchTotals totals;  ///< the set's, with those of the sources
  std::vector<double> sums;      ///< Objective::observe()'s results of all micro-batches, one after another
};

Likelihood score(const config::RunConfig& config, const PassResult& pass_result) {
  const auto objective = objective_for(config, pass_result.totals);
  const parallel::Score score = parallel::compute_score(*objective, pass_result.sums);
  Likelihood result = pass_result.counts;
  result.loss = unsigned_nan(score.loss / objective->denominator() + score.added);
  result.metrics = score.metrics;
  if (engine::objective_of(config).loss_is_nll) result.perplexity = std::exp(result.loss);
  if (const auto nll = score.metrics.find(kNll); nll != score.metrics.end()) result.perplexity = std::exp(nll->second);
  return result;
}

/// Makes a separate pass before the scoring pass.
void observe_set(engine::StepInputs& step, loader::EvalLoader& loader, const comm::Place& data, parallel::BatchTotals& totals) {
  step.begin(loader.max_micro_batches() * data.size);
  loader.rewind();
  for (std::int64_t round = 0; round < loader.max_micro_batches(); ++round) {
    const loader::MicroBatch batch = loader.next().value();
    step.observe({std::span(&batch, batch.tokens.empty() ? 0 : 1), 1, round * data.size + data.rank});
  }
  step.finish(totals);
}

/// State that all passes share.
struct PassContext {
  const config::RunConfig& config;
  engine::Instance& instance;
  engine::StepInputs step;
  comm::Communicator& data;
  const HeadValues& values;
  Progress bar;
  std::int64_t rounds = 0;
};

PassResult pass_over(loader::EvalLoader& loader, PassContext& p) {
  const double started = steady_seconds();
  PassResult pass_result{{.label_tokens = loader.global_label_tokens(),
                          .tokens = loader.global_tokens(),
                          .items = loader.num_items(),
                          .steps = loader.max_micro_batches()},
                         {},
                         {}};
  const comm::Place place{p.data.rank(), p.data.size()};
  pass_result.totals = totals_of(pass_result.counts, loader.weighted());
  if (p.step.observes()) observe_set(p.step, loader, place, pass_result.totals);
  const auto objective = objective_for(p.config, pass_result.totals);
  const std::size_t width = 1 + 2 * objective->metrics().size();
  // Each micro-batch has its own place, so that sums are the same on any number of ranks.
  pass_result.sums.resize(width * static_cast<std::size_t>(loader.max_micro_batches() * place.size));
  const auto observe = [&](const model::MicroInput& in, const parallel::Logprobs& logprobs, std::int64_t round) {
    const at::Tensor mine = objective->observe(in, logprobs, {}).cpu();
    std::copy_n(mine.const_data_ptr<double>(), width,
                pass_result.sums.begin() + static_cast<std::ptrdiff_t>(width) * (round * place.size + place.rank));
  };
  const auto inputs = [&](std::span<const loader::MicroBatch> batches, std::int64_t round) {
    return p.step.inputs({batches, 1, round * place.size + place.rank});
  };
  forward_pass(p.instance, loader, inputs, {objective.get(), observe, p.values, [&](std::int64_t) { p.bar.update(++p.rounds); }});
  p.instance.groups().sum_of_data_ranks(pass_result.sums);
  pass_result.counts.seconds = steady_seconds() - started;
  return pass_result;
}

/// Joins the passes over all sets. Adds the named totals, because denominators read counts; means were read during the passes.
PassResult joined(const std::vector<PassResult>& parts) {
  PassResult whole;
  for (const PassResult& part : parts) {
    whole.counts.label_tokens += part.counts.label_tokens;
    whole.counts.tokens += part.counts.tokens;
    whole.counts.items += part.counts.items;
    whole.counts.steps += part.counts.steps;
    whole.counts.seconds += part.counts.seconds;
    whole.totals.label_tokens += part.totals.label_tokens;
    whole.totals.items += part.totals.items;
    whole.totals.tokens += part.totals.tokens;
    whole.totals.weighted |= part.totals.weighted;
    for (const auto& [name, value] : part.totals.named) whole.totals.named[name] += value;
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

PerplexityResult evaluate(const config::RunConfig& config, engine::Instance& instance, engine::ColumnSource* reference,
                          const engine::EvalSet& set, comm::Communicator& comm, const HeadValues& values,
                          const std::string& bar) {
  std::vector<std::pair<std::string, engine::EvalSet>> sets;
  comm::agreed(comm, [&] {
    if (config.data.eval_on_each_dataset) sets = set.by_dataset();
    if (!config.data.eval_on_each_dataset || engine::objective_of(config).metrics_of_set) sets.emplace_back("", set);
  });
  std::vector<std::unique_ptr<loader::EvalLoader>> loaders;
  std::int64_t rounds = 0;
  for (const auto& [name, part] : sets) rounds += loaders.emplace_back(part.loader(config, comm))->max_micro_batches();
  PassContext passes{config,
                     instance,
                     engine::StepInputs(config, instance, reference, /*state=*/nullptr),
                     instance.groups().data(),
                     values,
                     Progress(bar, rounds, !bar.empty() && comm.rank() == 0)};
  std::vector<PassResult> parts;
  for (const auto& loader : loaders) parts.push_back(pass_over(*loader, passes));
  const bool has_whole = !sets.empty() && sets.back().first.empty();
  PerplexityResult result{score(config, has_whole ? parts.back() : joined(parts)), {}};
  for (std::size_t s = 0; s < sets.size(); ++s)
    if (!sets[s].first.empty()) result.by_dataset.emplace_back(sets[s].first, score(config, parts[s]));
  return result;
}

std::vector<std::string> metric_names(const config::RunConfig& config) {
  const auto objective = objective_for(config, {});
  std::map<std::string, double> metrics;
  for (const std::string_view name : objective->metrics()) metrics[std::string(name)] = 0.0;
  objective->summarise(metrics);
  const auto names = std::views::keys(metrics);
  return {names.begin(), names.end()};
}

bool reports_perplexity(const config::RunConfig& config) {
  const auto names = metric_names(config);
  return engine::objective_of(config).loss_is_nll || std::ranges::find(names, kNll) != names.end();
}

}  // namespace qft::eval

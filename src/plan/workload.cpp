#include "qft/plan/workload.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/loader/batch_bounds.h"
#include "qft/loader/shared_prompts.h"
#include "qft/parallel/layer_graphs.h"

#include <algorithm>

namespace qft::plan {
namespace {

/// The lengths of a pack's items.
struct Items {
  std::span<const std::int32_t> tokens, labels, shared;
  std::int64_t sequences = 1;  ///< sequences of an item
  loader::ItemSequences varying = {};
};

MicroShape shape_of(const std::vector<std::int64_t>& items, const Items& known) {
  const auto& [tokens, labels, shared, item_sequences, varying] = known;
  MicroShape shape;
  for (const std::int64_t item : items) {
    const auto i = static_cast<std::size_t>(item);
    const std::int64_t count = varying.counts.empty() ? item_sequences : varying.counts[i];
    const auto part = [&](std::int64_t n, std::int64_t s) { return n * (s + 1) / count - n * s / count; };
    for (std::int64_t s = 0; s < count; ++s) shape.add_sequence(part(tokens[i], s), part(labels[i], s));
    if (!shared.empty()) shape.share(shared[i]);
  }
  return shape;
}

/// Rough cost of a rank's step, to find the slowest rank.
double cost(const std::vector<MicroShape>& micros) {
  double total = 0;
  for (const MicroShape& m : micros) total += static_cast<double>(m.tokens + m.labels);
  return total;
}

StepShape step_of(const loader::StepPlan& plan, int world, const Items& known) {
  StepShape step;
  step.max_micro_batches = plan.max_micro_batches;
  step.tokens = plan.tokens;
  for (int rank = 0; rank < world; ++rank) {
    std::vector<MicroShape> micros;
    for (std::int64_t round = 0; round < plan.max_micro_batches; ++round) {
      const auto& items = plan.micro_batches[static_cast<std::size_t>(round * world + rank)];
      if (items.empty()) continue;
      micros.push_back(shape_of(items, known));
    }
    if (rank == 0 || cost(micros) > cost(step.micros)) step.micros = std::move(micros);
  }
  return step;
}

}  // namespace

Workload workload_of(const loader::StepSchedule& schedule, std::span<const std::int32_t> tokens,
                     std::span<const std::int32_t> labels, std::int64_t sample, std::int64_t item_sequences,
                     std::span<const std::int32_t> shared, const loader::ItemSequences& varying) {
  Workload all;
  const std::int64_t total = schedule.total_steps(), count = std::min(std::max<std::int64_t>(sample, 1), total);
  for (std::int64_t i = 0; i < count; ++i)
    all.steps.push_back(
        step_of(schedule.plan(i * total / count), schedule.world_size(), {tokens, labels, shared, item_sequences, varying}));
  const loader::BatchBounds most = loader::batch_bounds(schedule, tokens, labels, item_sequences, shared, varying);
  all.total_steps = total;
  static_cast<BatchShape&>(all.largest) = most.shape;
  double sum = 0;
  for (const StepShape& step : all.steps) sum += static_cast<double>(step.tokens);
  all.description =
      fmt::format("{} of the run's {} steps in the loader's order, {} tokens each on average, micro-batches of at most {} tokens",
                  count, total, format_count(sum / static_cast<double>(count)), all.largest.tokens);
  return all;
}

Workload workload_of(const loader::StepSchedule& schedule, const pack::PackReader& pack) {
  std::vector<std::int32_t> shared;
  if (schedule.options().share_prompts) shared = loader::shared_prompts(pack);
  const auto choice = loader::make_choice(pack, schedule.options().limits, schedule.options().seed);
  return workload_of(schedule, choice ? choice->most_tokens() : pack.item_tokens(), pack.item_labels(), kSampledSteps,
                     pack.attributes().max_item_sequences, shared, choice ? choice->sizes() : loader::ItemSequences{});
}

Workload full_rows(const config::RunConfig& config, int data_ranks, int item_sequences) {
  const auto& t = config.training;
  const std::int64_t cutoff = config.data.cutoff_len, micro = t.per_device_train_batch_size;
  const std::int64_t together = micro * data_ranks;
  const std::int64_t units = t.global_batch_size.value_or(together * t.gradient_accumulation_steps);
  // A limit on tokens makes more, smaller micro-batches of the same samples.
  const std::int64_t limited = std::max<std::int64_t>(1, t.max_tokens_per_micro_batch / (cutoff * item_sequences));
  const std::int64_t limit = t.max_tokens_per_micro_batch > 0 ? limited : micro;
  // Most samples of a rank in a micro-batch.
  const std::int64_t share = t.deterministic ? units : (units + data_ranks - 1) / data_ranks;
  const std::int64_t rows = std::min({micro, limit, share});
  MicroShape shape;
  for (std::int64_t i = 0; i < rows * item_sequences; ++i) shape.add_sequence(cutoff, cutoff);
  if (config.unshared_prompts_reason().empty()) shape.share(0);
  StepShape step;
  step.max_micro_batches = std::max<std::int64_t>(1, (units + rows * data_ranks - 1) / (rows * data_ranks));
  step.micros.assign(static_cast<std::size_t>(step.max_micro_batches), shape);
  step.tokens = units * cutoff * item_sequences;
  Workload all;
  all.steps = {step};
  all.largest = shape;
  all.total_steps = std::max<std::int64_t>(t.max_steps, 0);
  all.description = fmt::format("no pack yet: every sample as long as cutoff_len ({} tokens){}", cutoff,
                                config.stage().token_labels ? ", every token a label" : "");
  return all;
}

Workload with_estimates(Workload workload) {
  for (StepShape& step : workload.steps) {
    std::ranges::transform(step.micros, step.micros.begin(), &MicroShape::half);
    step.before = step.micros;
  }
  return workload;
}

Workload with_rewards(Workload workload) {
  for (StepShape& step : workload.steps) step.before = step.micros;
  return workload;
}

Workload padded_to_graph_shapes(Workload workload) {
  const auto pad = [](MicroShape& micro) {
    if (const std::int64_t added = parallel::padded_tokens(micro.tokens) - micro.tokens; added > 0) micro.add_sequence(added, 0);
  };
  // forward passes before the step run without graphs
  for (StepShape& step : workload.steps) std::ranges::for_each(step.micros, pad);
  pad(workload.largest);
  workload.description += "; cuda_graphs pads them";
  return workload;
}

}  // namespace qft::plan

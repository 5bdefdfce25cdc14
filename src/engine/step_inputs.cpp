#include "qft/engine/step_inputs.h"

#include <utility>

namespace qft::engine {

std::vector<model::MicroInput> make_inputs(Instance& instance, ColumnSource* reference, const SourceBatch& batch) {
  std::vector<model::MicroInput> inputs;
  for (const loader::MicroBatch& micro : batch.batches) inputs.push_back(instance.input(micro));
  if (reference != nullptr) reference->fill(batch, inputs);
  return inputs;
}

StepInputs::StepInputs(const config::RunConfig& config, Instance& instance, ColumnSource* reference, SourceState* state)
    : trains_first_only_(config.stage().trains_first_only), instance_(instance), reference_(reference), state_(state) {
  if (const ObjectiveRow& row = objective_of(config); row.make_sources != nullptr)
    sources_ = row.make_sources({config, instance, reference, state != nullptr});
  for (const auto& source : sources_)
    if (source->observes()) observers_.push_back(source.get());
}

std::vector<loader::MicroBatch> StepInputs::firsts_of(const SourceBatch& batch) const {
  std::vector<loader::MicroBatch> firsts;
  if (trains_first_only_)
    for (const loader::MicroBatch& micro : batch.batches) firsts.push_back(loader::select_sequence(micro, 0));
  return firsts;
}

std::optional<std::vector<model::MicroInput>> StepInputs::pass_before(const SourceBatch& batch) {
  std::optional<std::vector<model::MicroInput>> built;
  const auto inputs = [&] {
    if (!built) {
      const auto firsts = firsts_of(batch);
      built = make_inputs(instance_, reference_, trains_first_only_ ? batch.of(firsts) : batch);
    }
    return std::span<const model::MicroInput>(*built);
  };
  for (ColumnSource* source : observers_) source->observe(batch, inputs);
  return built;
}

void StepInputs::fill_totals(parallel::BatchTotals& totals, const loader::StepBatch& batch) {
  begin(batch.global_micro_batches);
  built_ = pass_before(
      {batch.micro_batches, batch.max_micro_batches, batch.first_micro_batch, static_cast<std::uint64_t>(batch.step)});
  finish(totals);
}

std::vector<model::MicroInput> StepInputs::inputs(const SourceBatch& batch) {
  const auto firsts = firsts_of(batch);
  const SourceBatch trained = trains_first_only_ ? batch.of(firsts) : batch;
  auto inputs = built_ ? *std::exchange(built_, std::nullopt) : make_inputs(instance_, reference_, trained);
  for (const auto& source : sources_) source->fill(trained, inputs);
  return inputs;
}

void StepInputs::begin(std::int64_t micro_batches) {
  for (ColumnSource* source : observers_) source->begin(micro_batches);
}

void StepInputs::observe(const SourceBatch& batch) {
  pass_before(batch);
}

void StepInputs::finish(parallel::BatchTotals& totals) {
  for (ColumnSource* source : observers_) source->finish(instance_.groups(), totals, state_);
}

}  // namespace qft::engine

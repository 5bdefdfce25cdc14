#include "step_work.h"

#include <map>

namespace qft::train {

double step_work(const model::ModelSpec& spec, const loader::StepBatch& batch) {
  double a_token = 0.0;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (unit.kind == model::UnitSpec::Kind::layer && p.shape.size() == 2) a_token += static_cast<double>(p.numel);
  std::map<std::int64_t, double> a_pair;  // by window
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      a_pair[sublayer.window] += sublayer.forward.pair_operations / 2;  // one multiplication and one addition count as one
  const auto a_label = static_cast<double>(spec.vocabulary.count * spec.config.hidden_size);
  double work = 0.0;
  for (const loader::MicroBatch& micro : batch.micro_batches) {
    work += a_token * static_cast<double>(micro.rows()) + a_label * static_cast<double>(micro.label_positions.size());
    for (std::size_t s = 1; s < micro.cu_seqlens.size(); ++s) {
      const std::int64_t length = micro.cu_seqlens[s] - micro.cu_seqlens[s - 1];
      for (const auto& [window, operations] : a_pair) work += operations * model::visible_pairs(length, window);
    }
  }
  return work / static_cast<double>(spec.context.ranks);
}

}  // namespace qft::train

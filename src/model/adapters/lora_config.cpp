#include "qft/model/lora_config.h"

#include "qft/model/sublayer_spec.h"

#include <algorithm>
#include <cmath>

namespace qft::model {

double LoraConfig::scaling(std::int64_t rank, double alpha) const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

bool LoraConfig::targets_parameter(const ExpertStack& stack) const {
  // The parameter's path in a layer depends on the version of transformers.
  return std::ranges::any_of(
      target_parameters, [&](const std::string& path) { return path == stack.name || path.ends_with("experts." + stack.name); });
}

LoraConfig LoraConfig::plain() const {
  LoraConfig twice = *this;
  const double factor = rslora ? std::sqrt(2.0) : 2.0;
  twice.pissa.reset();
  twice.rank *= 2;
  twice.alpha *= factor;
  for (auto& [key, number] : twice.ranks) number *= 2;
  for (auto& [key, number] : twice.alphas) number *= factor;
  return twice;
}

}  // namespace qft::model

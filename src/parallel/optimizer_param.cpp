#include "qft/parallel/optimizer_param.h"

namespace qft::parallel {

optim::Param optimizer_param(const model::ParamSpec& param) {
  using Place = optim::Param::Place;
  const bool of_experts = !param.parts.empty() || param.experts_last || param.path.find(".experts.") != std::string::npos;
  return {param.box.extent, of_experts,
          param.path == model::kEmbedTokens ? Place::embedding
          : param.path == model::kLmHead    ? Place::head
                                            : Place::layer};
}

std::int64_t state_bytes(const optim::RuleSpec& rule, const optim::Hyper& hyper, const optim::Precision& precision,
                         const model::UnitSpec& unit, std::int64_t length) {
  if (unit.trainable_numel == 0) return 0;
  if (rule.is_uniform()) return rule.state_bytes({{length}}, hyper, precision);
  std::int64_t bytes = 0;
  for (const model::ParamSpec& p : unit.params)
    if (p.trainable) bytes += rule.state_bytes(optimizer_param(p), hyper, precision);
  return static_cast<std::int64_t>(static_cast<double>(bytes) * static_cast<double>(length) /
                                   static_cast<double>(unit.trainable_numel));
}

}  // namespace qft::parallel

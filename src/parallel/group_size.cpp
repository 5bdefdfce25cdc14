#include "qft/parallel/group_size.h"

#include <algorithm>

#include "qft/model/ops/matmul_choice.h"

namespace qft::parallel {

std::int64_t activation_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens, bool recompute,
                              bool offloaded) {
  const auto& c = spec.config;
  const auto item = static_cast<std::int64_t>(c10::elementSize(compute));
  const std::int64_t statistic = compute == at::kDouble ? 8 : 4;
  std::int64_t layer = c.hidden_size * item;  // its output: the next one's input
  if (!recompute) {
    std::int64_t values = c.qkv_size() + c.q_size() + c.hidden_size + 2 * c.intermediate_size;
    std::int64_t statistics = 2 + c.num_heads;
    if (c.qk_norm) {
      values += c.q_size() + c.kv_size();
      statistics += c.num_heads + c.num_kv_heads;
    }
    for (std::size_t m = 0; m < model::kModules; ++m)
      if (spec.lora.enabled() && spec.lora.targets[m]) values += spec.lora.rank;
    layer += values * item + statistics * statistic;
  }
  const std::int64_t ends = 2 * c.hidden_size * item;  // the embedding's output, and the gradient on its way down
  return tokens * ((recompute && offloaded ? 1 : c.num_layers) * layer + ends);
}

std::int64_t boundary_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens) {
  return tokens * spec.config.hidden_size * static_cast<std::int64_t>(c10::elementSize(compute));
}

std::int64_t recomputed_layer_bytes(const model::ModelSpec& spec, at::ScalarType compute, std::int64_t tokens) {
  const std::int64_t inside = activation_bytes(spec, compute, tokens, false) - activation_bytes(spec, compute, tokens, true);
  return inside / spec.config.num_layers + boundary_bytes(spec, compute, tokens);
}

std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group) {
  // Blocks take even ranks.
  const bool blocks = spec.finetuning == model::Finetuning::full || spec.lora.rank % 2 == 0;
  const bool shared = precision.compute == at::kBFloat16 && blocks && model::ops::blocked_bf16_matmul();
  return shared ? 1 : group;
}

std::int64_t largest_group(std::int64_t available, std::int64_t reserved, std::int64_t each) {
  return std::max<std::int64_t>(1, (available / 5 * 4 - reserved) / std::max<std::int64_t>(each, 1));
}

}  // namespace qft::parallel

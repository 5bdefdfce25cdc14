#include "qft/parallel/strategy.h"

#include "qft/core/error.h"

#include <algorithm>

namespace qft::parallel {
namespace {

constexpr Strategy kStrategies[] = {
    // clang-format off
    // name           optimizer gradients weights reshard grouped
    {"ddp",           false,    false,    false,  true,   false},
    {"zero1",         true,     false,    false,  true,   false},
    {"zero2",         true,     true,     false,  true,   false},
    {"shard_grad_op", true,     true,     true,   false,  false},
    {"zero3",         true,     true,     true,   true,   false},
    {"hsdp",          true,     true,     true,   true,   true},
    // clang-format on
};

}  // namespace

Strategy with_offload(Strategy strategy, const Offload& offload) {
  if (!offload.optimizer && !offload.weights) return strategy;
  if (!strategy.optimizer) strategy.optimizer = strategy.gradients = strategy.weights = true;
  if (offload.optimizer) strategy.gradients = true;
  return strategy;
}

std::span<const Strategy> strategies() {
  return kStrategies;
}

const Strategy& strategy_of(std::string_view name) {
  const auto* row =
      std::find_if(std::begin(kStrategies), std::end(kStrategies), [&](const Strategy& s) { return s.name == name; });
  if (row != std::end(kStrategies)) return *row;
  std::string known;
  for (const Strategy& s : kStrategies) known += (known.empty() ? "" : ", ") + std::string(s.name);
  fail_config("strategy '{}' is not known: use one of {}", name, known);
}

}  // namespace qft::parallel

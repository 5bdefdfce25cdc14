#include "qft/parallel/strategy.h"

#include "qft/core/error.h"
#include "qft/core/units.h"

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

comm::Degrees Sharding::degrees() const {
  return {.replicate = replicas, .shard = shard_ranks, .context = context_ranks, .tensor = tensor_ranks};
}

Sharding make_sharding(const Strategy& strategy, const Offload& offload, int ranks, std::int64_t group_ranks,
                       std::string_view noun) {
  Sharding sharding{.strategy = with_offload(strategy, offload), .offload = offload};
  if (strategy.sharded()) {
    const std::int64_t group = strategy.grouped ? std::min<std::int64_t>(group_ranks, 1 << 30) : ranks;
    QFT_ASSERT(group > 0, "strategy {} has groups of {} ranks", strategy.name, group);
    if (ranks % group != 0)
      fail_config("hsdp_group_size {} does not divide the {}: start a multiple of {}, or change it", group,
                  count_noun(ranks, noun), count_noun(group, noun));
    sharding.shard_ranks = static_cast<int>(group);
  }
  sharding.replicas = ranks / sharding.shard_ranks;
  return sharding;
}

std::string describe(const Sharding& sharding) {
  std::string text = fmt::format("{}: {}", sharding.strategy.name, comm::describe(sharding.degrees()));
  const Offload& offload = sharding.offload;
  if (!offload.any()) return text;
  text += "; offloaded to host memory:";
  if (offload.optimizer) text += " optimizer";
  if (offload.weights) text += " weights";
  if (offload.activations) text += " activations";
  return text;
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

#include "qft/plan/feasibility.h"

#include "qft/device/memory.h"
#include "qft/device/staged_copy.h"
#include "qft/ops/matmul_choice.h"
#include "qft/parallel/activation_bytes.h"

#include <algorithm>

namespace qft::plan {
namespace {

/// For `group` micro-batches in flight.
std::int64_t kernel_bytes(const ExecutionConfig& run, std::int64_t group) {
  return run.on_cpu ? device::kernel_cache_bytes(kernel_sets(run.spec, run.precision, group)) : 0;
}

}  // namespace

std::int64_t kernel_sets(const model::ModelSpec& spec, const optim::Precision& precision, std::int64_t group) {
  // Products of blocks need even LoRA ranks.
  bool blocks = true;
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      for (const model::ParamGroup& linears : sublayer.params)
        for (const model::LoraRows& part : linears.lora) blocks = blocks && part.rank % 2 == 0;
  const bool shared = precision.compute == at::kBFloat16 && blocks && ops::blocked_bf16_matmul();
  return shared ? 0 : group;
}

Footprint footprint_of(const ExecutionConfig& run, const config::RunConfig& config) {
  const auto& t = config.training;
  Footprint f;
  f.memory = plan_memory(run);
  f.kernels = kernel_bytes(run, run.group);
  // Data on a device is copied to the host before it is written, with and without async_save.
  if (run.training && t.save_strategy != "no" && (t.async_save || !run.on_cpu)) f.staged = staged_bytes(run, t.save_only_model);
  if (run.training && !run.on_cpu) f.staged += static_cast<std::int64_t>(device::StagedCopy::kBytes);
  f.needed = f.memory.total() + (run.on_cpu ? f.memory.host + f.staged + f.kernels : 0);
  if (!run.on_cpu) f.on_host = f.memory.host + f.staged;
  return f;
}

bool fits(const Footprint& footprint, const AvailableMemory& room) {
  const auto holds = [](std::int64_t bytes, std::int64_t available) { return available == 0 || bytes <= available / 10 * 9; };
  return holds(footprint.needed, room.device) && holds(footprint.on_host, room.host);
}

PolicyFit fastest_that_fits(const config::RunConfig& config, const AvailableMemory& room,
                            const std::function<ExecutionConfig(const MemoryPolicy&)>& config_with) {
  PolicyFit fit;
  for (const MemoryPolicy& policy : policies_of(config)) {
    fit = {policy, footprint_of(config_with(policy), config)};
    fit.fits = fits(fit.footprint, room);
    if (fit.fits) break;
  }
  return fit;
}

std::int64_t largest_group(const ExecutionConfig& one, const Footprint& footprint, std::int64_t available,
                           std::int64_t micro_batches) {
  const std::int64_t each =
      parallel::activation_bytes(one.spec, one.precision.compute, one.shape.tokens, one.recompute, one.offload.activations);
  const std::int64_t more = std::max<std::int64_t>(1, each + kernel_bytes(one, 2) - kernel_bytes(one, 1));
  const std::int64_t group = (available / 5 * 4 - (footprint.needed - each)) / more;
  return std::clamp<std::int64_t>(group, 1, std::max<std::int64_t>(1, micro_batches));
}

}  // namespace qft::plan

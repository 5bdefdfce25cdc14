#include "qft/engine/run_plan.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/memory.h"
#include "qft/engine/objectives.h"
#include "qft/engine/precision.h"
#include "qft/engine/reference.h"
#include "qft/model/merge.h"
#include "qft/plan/feasibility.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model_spec.h"

namespace qft::engine {
namespace {

/// Throws ConfigError if layers are to run as CUDA graphs but cannot.
void require_graphs(const plan::RunPlan& run, c10::Device device) {
  if (!run.schedule.graphs) return;
  const model::ModelSpec& spec = *run.spec;
  const at::ScalarType compute = run.precision.compute;
  const parallel::Strategy& strategy = run.sharding.strategy;
  if (!strategy.has_fixed_addresses())
    fail_config(
        "cuda_graphs needs weights and gradients at fixed addresses, but strategy {} runs, which shards them: use ddp or zero1, "
        "or remove cuda_graphs",
        strategy.name);
  if (spec.config.rope.dynamic)
    fail_config(
        "cuda_graphs replays layers with one table of angles, but the model's rope scaling is dynamic: remove cuda_graphs");
  const bool bf16_has_flash = compute == at::kFloat && device::facts_of(device).bf16 &&
                              ops::planned_attention_path(at::kBFloat16, spec.config.head_dim) == ops::AttentionPath::flash;
  for (const model::Layer& layer : spec.layers)
    for (const model::SubLayerSpec& sublayer : layer)
      if (!model::make_sublayer(spec.config, sublayer)->can_be_captured(device, compute))
        fail_config(
            "cuda_graphs needs flash attention, which LibTorch does not have for {} and heads of {} on {} (its other kernels "
            "copy each sequence, and a graph cannot follow changing lengths): {}remove cuda_graphs",
            c10::toString(compute), spec.config.head_dim, device::describe(device), bf16_has_flash ? "set bf16: true, or " : "");
}

std::string head_names(const model::Head& head) {
  return head.classifies() ? fmt::format("tensor {}", model::kScore)
                           : fmt::format("{} (nor {})", io::kValueHeadFiles[0], io::kValueHeadFiles[1]);
}

/// Training may start from a new head.
void require_value_head(const config::RunConfig& config, const ModelSource& source, const model::ModelSpec& spec) {
  if (const auto file = head_file(source, spec); !file.path.empty()) return model::require_value_head(spec, file);
  if (source.trains()) return;
  const auto& [adapters, model] = std::pair(config.model.adapter_name_or_path, config.model.model_name_or_path);
  fail_config("'{}' has no {}: it is not a {}; set {} to an output_dir of stage {}, or set another stage",
              adapters.empty() ? model : adapters.back(), head_names(spec.head),
              spec.head.classifies() ? "classifier" : "reward model",
              adapters.empty() ? "adapter_name_or_path or model_name_or_path" : "adapter_name_or_path", config.finetuning.stage);
}

/// Checks the headers of all files that the run loads.
void require_files(const config::RunConfig& config, const ModelSource& source, const model::ModelSpec& spec) {
  std::vector<std::filesystem::path> merged;
  for (const AdapterSource& adapter : source.merged()) merged.push_back(adapter.dir);
  model::merge_adapters(source.files(), source.own_config(), merged);
  model::require_base_weights(spec, source.files());
  if (source.live()) model::require_adapter(spec, source.live()->dir);
  if (spec.head.has_linear()) require_value_head(config, source, spec);
}

/// Throws ConfigError if debug_sync is combined with work that waits for the device.
void require_no_waits(const plan::RunPlan& run) {
  if (!run.diagnostics.debug_sync || run.on_cpu) return;
  const parallel::Offload& offload = run.sharding.offload;
  if (offload.optimizer || offload.weights)
    fail_config(
        "debug_sync cannot be combined with offloading, which waits for copies to host memory, but {} runs: choose a strategy "
        "without offloading, or remove debug_sync",
        parallel::describe(run.sharding));
  if (run.spec->config.experts.count > 0)
    fail_config(
        "debug_sync cannot be combined with experts: the host waits for each router to distribute the rows; remove debug_sync");
}

}  // namespace

plan::RunPlan plan_of(const config::RunConfig& config, const ModelSource& source) {
  plan::RunPlan run = plan::plan_of_settings(config, source.trains());
  run.spec = std::make_shared<const model::ModelSpec>(spec_of(config, source));
  run.objective = traits_of(config);
  run.schedule.reference = has_reference_lane(config, run.spec->adapter, source.use());
  // Only training needs its reference here; answers need none, whatever the stage.
  if (source.reference() && reference_of(config, run.spec->adapter, source.use()) == ReferenceKind::model)
    run.reference_model =
        std::make_shared<const model::ModelSpec>(spec_of(reference_config(config, source.use()), *source.reference()));
  if (!source.trains()) {
    run.objective.kind = parallel::ObjectiveKind::row_local;
    return run;
  }
  run.precision = training_precision(config);
  run.random.lora_dropout = run.spec->adapter.lora.dropout;
  return run;
}

plan::RunPlan resolve_run(const config::RunConfig& config, const ModelSource& source, comm::Communicator& comm,
                          c10::Device device, const plan::Batches& batches) {
  plan::RunPlan run;
  const bool all_bf16 = comm::all_reduce_value(comm, has_bf16(device) ? 1 : 0, comm::ReduceOp::min) == 1;
  // If one rank cannot see a directory, all ranks must end, with that rank's reason.
  comm::agreed(comm, [&] {
    run = plan_of(config, source);
    require_files(config, source, *run.spec);
    ChosenPrecision chosen = precision_of(config, source, device, all_bf16);
    run.precision = chosen.precision;
    run.precision_reason = std::move(chosen.reason);
    if (run.reference_model) require_shareable_prompts(config, run.reference_model->config.rope);
  });
  if (run.training)
    if (const std::string warning = plan::precision_warning(run.precision, device.is_cpu()); !warning.empty())
      log::warn_once(warning);
  device::release_unused();  // frees what packing and the tokenizer took
  const plan::MachineFacts machine = plan::machine_facts(config, run, comm, device);
  run = plan::resolve(std::move(run), config, machine, batches);
  comm::agreed(comm, [&] {
    require_graphs(run, device);
    require_no_waits(run);
  });
  if (device.is_cpu())
    run.footprint.kernels = device::raise_kernel_cache_limit(plan::kernel_sets(*run.spec, run.precision, run.schedule.group));
  return run;
}

}  // namespace qft::engine

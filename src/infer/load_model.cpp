#include "qft/infer/load_model.h"

#include "qft/checkpoint/branch.h"
#include "qft/core/convert.h"
#include "qft/core/log.h"
#include "qft/device/scalar_type.h"
#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"

#include <fmt/ranges.h>

namespace qft::infer {
namespace {

namespace fs = std::filesystem;

bool holds_result(const fs::path& dir) {
  return holds_adapter(dir) || io::holds_model_weights(dir);
}

/// Returns true if `path` is `dir` or lies in it.
bool is_inside(const fs::path& path, const fs::path& dir) {
  std::error_code code;
  const fs::path relative = fs::relative(path, dir, code);
  return !code && !relative.empty() && *relative.begin() != "..";
}

/// Returns "adapter 'out' (rank 8, alpha 16, on q_proj, v_proj)".
std::string adapter_words(const engine::ModelSource& source, const model::AdapterConfig& config) {
  if (!source.live()) return "no adapter";
  std::string merged;
  for (const engine::AdapterSource& adapter : source.merged())
    merged += fmt::format("adapter '{}', merged; ", adapter.dir.string());
  const fs::path& dir = source.live()->dir;
  if (config.oft.enabled()) return fmt::format("{}adapter '{}' ({})", merged, dir.string(), config.oft.describe());
  const model::LoraConfig& lora = config.lora;
  return fmt::format("{}adapter '{}' ({}rank {}, alpha {}, on {})", merged, dir.string(), lora.dora ? "DoRA, " : "", lora.rank,
                     lora.alpha,
                     lora.target_pattern.empty() ? fmt::format("{}", fmt::join(lora.targets, ", ")) : lora.target_pattern);
}

}  // namespace

bool holds_adapter(const fs::path& dir) {
  return fs::exists(dir / model::kAdapterConfigFile);
}

fs::path unused_result(const config::RunConfig& config) {
  const fs::path dir = config.training.output_dir;
  if (dir.empty() || config.is_given("adapter_name_or_path") || is_inside(config.model.model_name_or_path, dir)) return {};
  if (holds_result(dir)) return dir;
  for (const auto& entry : checkpoint::rank_checkpoints(dir))
    if (entry.origin == checkpoint::Origin::ours) return holds_result(entry.dir) ? entry.dir : fs::path();
  return {};
}

std::string setting_for(const fs::path& dir) {
  return fmt::format("{}={}", holds_adapter(dir) ? "adapter_name_or_path" : "model_name_or_path", dir.string());
}

std::unique_ptr<engine::Instance> load_for_inference(const config::RunConfig& config, const engine::ModelSource& source,
                                                     comm::Communicator& comm, c10::Device device) {
  auto instance = engine::Instance::load(engine::resolve_run(config, source, comm, device), source, comm, device);
  if (comm.rank() != 0) return instance;
  const std::string& base = config.model.model_name_or_path;
  log::info("model '{}', {}; computed in {} ({})", base, adapter_words(source, instance->spec().adapter),
            compute_type_name(*instance), instance->plan().precision_reason);
  if (comm.size() > 1) engine::log_layout(config, *instance);
  if (const fs::path unused = unused_result(config); !unused.empty())
    log::warn("the model '{}' is used without the training result in '{}': to use the result, set {}", base, unused.string(),
              setting_for(unused));
  return instance;
}

std::unique_ptr<engine::Instance> load_for_inference(const config::RunConfig& config, comm::Communicator& comm,
                                                     c10::Device device) {
  const auto source = engine::ModelSource::read(config, engine::Use::inference, comm);
  return load_for_inference(config, source, comm, device);
}

std::string compute_type_name(const engine::Instance& instance) {
  return std::string(torch_name(device::dtype_of(instance.precision().compute)));
}

}  // namespace qft::infer

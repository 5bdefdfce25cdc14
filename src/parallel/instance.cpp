#include "qft/parallel/instance.h"

#include <chrono>
#include <numeric>

#include "qft/comm/exchange.h"
#include "qft/core/error.h"

namespace qft::parallel {
namespace {

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& w : words) text += (text.empty() ? "" : ",") + w;
  return text;
}

at::ScalarType file_type(const io::ModelFiles& files) {
  const auto names = files.names();
  require(!names.empty(), "'{}' holds no tensors", files.dir().string());
  return model::scalar_type_of(files.at(names.front()).entry->dtype);
}

model::ModelSpec spec_of(const config::RunConfig& config, Use use) {
  const model::LoraConfig lora = lora_of(config, use);
  return model::ModelSpec::build(model::ModelConfig::load(config.model.model_name_or_path),
                                 lora.enabled() ? model::Finetuning::lora : model::Finetuning::full, lora);
}

}  // namespace

std::filesystem::path adapter_dir(const config::RunConfig& config) {
  const auto& names = config.model.adapter_name_or_path;
  if (names.empty()) return {};
  if (names.size() > 1)
    fail_config("adapter_name_or_path names {} adapters: only one is implemented; merge the others first (qft export)",
                names.size());
  return std::filesystem::path(names.front()) / config.model.adapter_folder;
}

model::LoraConfig lora_of(const config::RunConfig& config, Use use) {
  const auto adapter = adapter_dir(config);
  if (!adapter.empty()) {
    model::LoraConfig lora = model::read_adapter_config(adapter);
    if (use == Use::training) lora.dropout = config.finetuning.lora_dropout;
    return lora;
  }
  model::LoraConfig lora;
  if (use == Use::inference || config.finetuning.finetuning_type != "lora") return lora;
  lora.rank = config.finetuning.lora_rank;
  lora.alpha = static_cast<double>(config.finetuning.lora_alpha);
  lora.dropout = config.finetuning.lora_dropout;
  lora.rslora = config.finetuning.use_rslora;
  lora.set_targets(join(config.finetuning.lora_target));
  return lora;
}

optim::Precision precision_of(const config::RunConfig& config, Use use, const io::ModelFiles& files) {
  const bool wished = config.training.bf16 || config.training.pure_bf16 || config.training.fp16 ||
                      config.training.compute_dtype != "auto";
  if (use == Use::inference && !wished) {
    const at::ScalarType type = file_type(files);
    return type == at::kHalf ? optim::Precision::fp32() : optim::Precision{type, type, type, type};
  }
  switch (config.compute_dtype()) {
    case DType::f64: return optim::Precision::fp64();
    case DType::f32: return optim::Precision::fp32();
    case DType::bf16: return config.fp32_masters() ? optim::Precision::bf16() : optim::Precision::pure_bf16();
    default: break;
  }
  fail_config("compute dtype {} is not implemented: use bf16, pure_bf16 or fp32", safetensors_name(config.compute_dtype()));
}

std::unique_ptr<Instance> Instance::load(const config::RunConfig& config, comm::Communicator& comm, c10::Device device,
                                         Use use) {
  const auto start = std::chrono::steady_clock::now();
  const std::filesystem::path dir = config.model.model_name_or_path;
  std::unique_ptr<Instance> self(new Instance());
  std::optional<io::ModelFiles> files;
  // A directory that one rank does not see must end all of them, and with that rank's reason.
  comm::agreed(comm, [&] {
    self->spec_ = spec_of(config, use);
    files = io::ModelFiles::open(dir);
    self->precision_ = precision_of(config, use, *files);
  });
  Instance& m = *self;
  const bool training = use == Use::training;
  m.transformer_ = std::make_unique<model::Transformer>(m.spec_, m.precision_.compute, device);
  m.store_ = make_replicated_store(m.spec_, m.precision_, device, comm, training);
  m.optimizer_index_.assign(m.spec_.units.size(), -1);
  if (training) {
    const auto& t = config.training;
    int next = 0;
    for (std::size_t u = 0; u < m.spec_.units.size(); ++u)
      if (m.spec_.units[u].trainable_numel > 0) m.optimizer_index_[u] = next++;
    m.optimizer_ = std::make_unique<optim::AdamW>(
        m.store_->owned(), optim::AdamWOptions{t.adam_beta1, t.adam_beta2, t.adam_epsilon, t.weight_decay}, m.precision_);
  }
  comm::agreed(comm, [&] {
    const auto access = [&](int unit, const model::ParamSpec& p) { return m.param(unit, p); };
    model::load_base_weights(m.spec_, *files, access);
    const auto adapter = adapter_dir(config);
    if (!adapter.empty()) {
      model::load_adapter(m.spec_, adapter, access);
    } else if (m.spec_.lora.enabled()) {
      model::init_lora(m.spec_, static_cast<std::uint64_t>(config.training.seed), access);
    }
  });
  m.publish();
  m.executor_ = std::make_unique<Executor>(
      *m.transformer_, *m.store_, comm,
      ExecutorOptions{config.recompute(), training ? m.spec_.lora.dropout : 0.0, static_cast<std::uint64_t>(config.training.seed)});
  m.report_.bytes_read = static_cast<std::int64_t>(files->total_bytes());
  m.report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return self;
}

at::Tensor Instance::param(int unit, const model::ParamSpec& param) const {
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  if (param.trainable && index >= 0)
    return optimizer_->master(static_cast<std::size_t>(index)).narrow(0, param.offset, param.numel);
  const UnitBuffers& buffers = store_->acquire(unit);
  const at::Tensor view = model::param_view(param, buffers.frozen, buffers.trainable);
  store_->release(unit);
  return view;
}

at::Tensor Instance::moment(int unit, const model::ParamSpec& param, int which) const {
  const int index = optimizer_index_.at(static_cast<std::size_t>(unit));
  QFT_ASSERT(index >= 0 && param.trainable, "'{}' has no optimizer state", param.name);
  const auto i = static_cast<std::size_t>(index);
  return (which == 0 ? optimizer_->exp_avg(i) : optimizer_->exp_avg_sq(i)).narrow(0, param.offset, param.numel);
}

void Instance::publish() {
  if (optimizer_) optimizer_->publish();
}

}  // namespace qft::parallel

#include "merged_model.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"
#include "qft/model/merge.h"
#include "qft/ops/quantized.h"

#include <utility>

#include "sources.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

/// Of the first of the tensors that are not quantised.
DType plain_type(const io::ModelFiles& files) {
  for (const std::string& name : files.names())
    if (const DType type = files.at(name).entry->dtype; is_floating(type)) return type;
  fail("'{}' holds no tensors of a floating type", files.dir().string());
}

ModelSpec spec_of(const fs::path& base, const io::ModelFiles& files, const fs::path& adapter) {
  const LoraConfig lora = adapter.empty() ? LoraConfig{} : read_adapter_config(adapter);
  const ModelConfig config = ModelConfig::load(base);
  return ModelSpec::build(config, lora.enabled() ? Finetuning::lora : Finetuning::full, lora,
                          config.stored ? at_rest_of(*config.stored, &files) : AtRest::in({}));
}

io::ModelFiles open_merged(const fs::path& base, const std::vector<fs::path>& earlier) {
  io::ModelFiles files = io::ModelFiles::open(base);
  merge_adapters(files, ModelConfig::load(base), earlier);
  return files;
}

/// A whole tensor as fp32.
void read_as_float(const io::TensorLocation& at, float* to) {
  std::vector<char> bytes(at.entry->bytes());
  at.file->read(*at.entry, 0, bytes.size(), bytes.data());
  to_float(at.entry->dtype, bytes.data(), at.entry->elements(), to);
}

at::Tensor room_for(const ModelTensor& tensor) {
  return at::empty({tensor.rows() * tensor.columns()}, at::kFloat);
}

}  // namespace

MergedModel::MergedModel(const fs::path& base, const fs::path& adapter, const std::vector<fs::path>& earlier)
    : files_(open_merged(base, earlier)), spec_(std::make_unique<ModelSpec>(spec_of(base, files_, adapter))) {
  require_base_weights(*spec_, files_);
  if (spec_->lora.enabled()) adapter_.emplace(*spec_, adapter);
  if (spec_->config.stored) stored_ = make_stored_format(*spec_->config.stored);
  const DType type = plain_type(files_);
  for (const UnitSpec& unit : spec_->units)
    for (const ParamSpec& p : unit.params) {
      if (p.role != Role::base) continue;
      if (p.is_quantized()) {
        std::int64_t row = 0;
        for (const FileTensor& part : p.in_files()) {
          tensors_.push_back({&p, part.name, part.shape, type, {}, row});
          row += p.packed.rows;
        }
        continue;
      }
      for (const Source& source : sources_of(p, files_)) {
        const io::TensorEntry& entry = *source.at.entry;
        const bool parted = spec_->untied && p.path == kLmHead;  // its source is the embeddings' tensor
        tensors_.push_back(
            {&p, parted ? p.name : entry.name, entry.shape, entry.dtype, source.at, source.begin / p.shape.back()});
      }
    }
}

const Factors* MergedModel::factors_of(const ParamSpec& param) {
  if (std::exchange(current_, &param) != &param) factors_ = adapter_ ? adapter_->find(param) : std::nullopt;
  return factors_ ? &*factors_ : nullptr;
}

const io::TensorLocation* MergedModel::saved(const ParamSpec& param) const {
  return adapter_ ? adapter_->saved(param) : nullptr;
}

bool MergedModel::changes(const ParamSpec& param) const {
  return adapter_ && adapter_->changes(param);
}

at::Tensor MergedModel::base_values(const ModelTensor& tensor) const {
  const at::Tensor values = room_for(tensor);
  if (!tensor.is_stored()) {
    read_as_float(tensor.plain, values.data_ptr<float>());
    return values;
  }
  const ops::QuantizedLayout& layout = tensor.param->packed;
  const at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
  stored_->read(files_, tensor.name, layout, bytes.data_ptr<std::uint8_t>());
  ops::dequantize(bytes, layout, values);
  return values;
}

at::Tensor MergedModel::values(const ModelTensor& tensor) {
  if (const io::TensorLocation* whole = saved(*tensor.param)) {
    const at::Tensor values = room_for(tensor);
    read_as_float(*whole, values.data_ptr<float>());
    return values;
  }
  const at::Tensor merged = base_values(tensor);
  if (const Factors* factors = factors_of(*tensor.param)) {
    auto* rows = reinterpret_cast<char*>(merged.data_ptr<float>());
    merge_rows(DType::f32, rows, DType::f32, rows, tensor.columns(), tensor.first_row, tensor.rows(), *factors);
  }
  return merged;
}

}  // namespace qft::model

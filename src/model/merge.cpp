#include "merge.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"
#include "qft/model/merge_adapters.h"
#include "qft/ops/cpu/kernels.h"
#include "qft/ops/dora.h"
#include "qft/ops/quantized.h"

#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

#include "adapter_merge.h"
#include "sources.h"
#include "tensor_check.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kColumns = 2048;  // of a row at once: their sums stay in the first-level cache

std::vector<float> read_factor(const io::TensorFile& file, const ParamSpec& factor) {
  std::vector<float> all;
  for (const FileTensor& part : factor.in_files()) {
    const io::TensorEntry& entry = factor_of(file, part.name);
    std::vector<char> bytes(entry.bytes());
    file.read(entry, 0, bytes.size(), bytes.data());
    all.resize(all.size() + entry.elements());
    to_float(entry.dtype, bytes.data(), entry.elements(), all.data() + all.size() - entry.elements());
  }
  if (!factor.experts_last) return all;
  std::vector<float> experts_first(all.size());
  const auto experts = static_cast<std::size_t>(factor.shape[0]), values = all.size() / experts;
  for (std::size_t i = 0; i < values; ++i)
    for (std::size_t e = 0; e < experts; ++e) experts_first[e * values + i] = all[i * experts + e];
  return experts_first;
}

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

/// The factor of DoRA for a row of these values. Its norm is rounded to the type of the weights, as in training (ops/dora.h).
template <class Number>
double dora_factor(const std::vector<Number>& values, float magnitude, DType type) {
  double squares = 0;
  for (const Number v : values) squares += static_cast<double>(v) * static_cast<double>(v);
  double norm = std::sqrt(squares);
  if (type != DType::f64) {
    char bytes[sizeof(float)];
    const auto exact = static_cast<float>(norm);
    float rounded = 0;
    from_float(type, &exact, 1, bytes);
    to_float(type, bytes, 1, &rounded);
    norm = rounded;
  }
  return static_cast<double>(magnitude) / std::max(norm, ops::kDoraLeastNorm);
}

/// to[columns] = from[columns] + scaling * b A, with DoRA times the row's factor; `from` may be `to` where the types are one.
/// `sums` and `values` have room for a row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const Factors::Row& row, std::int64_t columns,
               std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::activation_kernels<float>();
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t n = std::min(kColumns, columns - first);
    for (std::int64_t k = 0; k < row.rank; ++k)
      kernels.add_to_float(sums.data() + first, row.a + k * columns + first, row.b[k], n);
  }
  const auto count = static_cast<std::size_t>(columns);
  if (from_type == DType::f64 && to_type == DType::f64) {
    std::vector<double> wide(count);
    std::memcpy(wide.data(), from, count * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) wide[i] += static_cast<double>(row.scaling) * static_cast<double>(sums[i]);
    const double factor = row.magnitude == nullptr ? 1.0 : dora_factor(wide, *row.magnitude, from_type);
    for (double& value : wide) value *= factor;
    std::memcpy(to, wide.data(), count * sizeof(double));
    return;
  }
  to_float(from_type, from, count, values.data());
  kernels.add_to_float(values.data(), sums.data(), row.scaling, columns);
  if (row.magnitude != nullptr) {
    const auto factor = static_cast<float>(dora_factor(values, *row.magnitude, from_type));
    for (float& value : values) value *= factor;
  }
  from_float(to_type, values.data(), count, to);
}

}  // namespace

Factors::Factors(const io::TensorFile& file, const AdapterTensors& tensors, std::int64_t out)
    : a_(read_factor(file, *tensors.a)),
      b_(read_factor(file, *tensors.b)),
      rows_(tensors.rows),
      out_(out),
      in_(tensors.a->shape.back()),
      rank_(tensors.b->shape.back()) {
  if (tensors.magnitude != nullptr) magnitudes_ = read_factor(file, *tensors.magnitude);
  for (const LoraRows& part : rows_) b_rows_ += part.rows;
}

Factors::Row Factors::at(std::int64_t row) const {
  const std::int64_t expert = row / out_, within = row % out_;
  std::int64_t rank0 = expert * rank_ * std::ssize(rows_), b_row = expert * b_rows_;
  for (const LoraRows& part : rows_) {
    if (within >= part.row0 && within < part.row0 + part.rows)
      return {b_.data() + (b_row + within - part.row0) * rank_, a_.data() + rank0 * in_, rank_, static_cast<float>(part.scaling),
              magnitudes_.empty() ? nullptr : magnitudes_.data() + row};
    rank0 += rank_;
    b_row += part.rows;
  }
  return {};
}

Adapter::Adapter(const ModelSpec& spec, const fs::path& dir) : file_(open_adapter(dir)) {
  std::size_t used = 0;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      for (const FileTensor& part : spec.in_adapter(param)) {
        const io::TensorEntry& entry = factor_of(*file_, part.name);
        require_shape(*file_, entry, part.shape);
        if (param.role == Role::base) saved_[param.name] = {file_.get(), &entry};
        ++used;
      }
      if (!is_factor(param.role)) continue;
      AdapterTensors& tensors = of_[base_weight_of(param)];
      (param.role == Role::lora_a ? tensors.a : param.role == Role::lora_b ? tensors.b : tensors.magnitude) = &param;
      tensors.layer = unit.layer;
    }
  require_all_used(*file_, used);
  for (auto& [name, tensors] : of_) tensors.rows = rows_of(spec.layers[static_cast<std::size_t>(tensors.layer)], name);
}

std::optional<Factors> Adapter::find(const ParamSpec& base) const {
  const auto it = of_.find(base.name);
  if (it == of_.end()) return {};
  return Factors(*file_, it->second, base.shape[base.shape.size() - 2]);
}

const io::TensorLocation* Adapter::saved(const ParamSpec& base) const {
  const auto it = saved_.find(base.name);
  return it == saved_.end() ? nullptr : &it->second;
}

/// All rows of a linear; of a stack those of its linears that are wrapped.
std::vector<LoraRows> Adapter::rows_of(const Layer& layer, const std::string& base) {
  for (const SubLayerSpec& sublayer : layer)
    for (const ParamGroup& group : sublayer.params) {
      if (group.is_stack() && base.ends_with(group.stack.path + "." + group.stack.name)) return group.lora;
      for (LoraRows rows : group.lora)
        if (base.ends_with("." + group.linears[rows.linear].path + ".weight")) {
          rows.row0 = 0;
          return {rows};
        }
    }
  fail("the adapter has factors for '{}', which is no weight of the model", base);
}

void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors) {
  const auto row_bytes = [&](DType type) { return columns * static_cast<std::int64_t>(size_of(type)); };
  for_row_parts(count, [&](std::int64_t from_row, std::int64_t to_row) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), values(static_cast<std::size_t>(columns));
    for (std::int64_t r = from_row; r < to_row; ++r)
      merge_row(from_type, from + r * row_bytes(from_type), to_type, to + r * row_bytes(to_type), factors.at(first + r), columns,
                sums, values);
  });
}

MergedModel::MergedModel(const fs::path& base, const std::vector<fs::path>& earlier, const fs::path& adapter)
    : files_(io::ModelFiles::open(base)), spec_(std::make_unique<ModelSpec>(spec_of(base, files_, adapter))) {
  merge_adapters(files_, ModelConfig::load(base), earlier);
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
        const io::TensorLocation* saved = adapter_ ? adapter_->saved(p) : nullptr;
        tensors_.push_back({&p, parted ? p.name : entry.name, entry.shape, entry.dtype, saved != nullptr ? *saved : source.at,
                            source.begin / p.shape.back()});
      }
    }
}

const Factors* MergedModel::factors_of(const ParamSpec& param) {
  if (std::exchange(current_, &param) != &param) factors_ = adapter_ ? adapter_->find(param) : std::nullopt;
  return factors_ ? &*factors_ : nullptr;
}

at::Tensor MergedModel::base_values(const ModelTensor& tensor) const {
  at::Tensor values = at::empty({tensor.rows() * tensor.columns()}, at::kFloat);
  if (tensor.is_stored()) {
    const ops::QuantizedLayout& layout = tensor.param->packed;
    const at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
    stored_->read(files_, tensor.name, layout, bytes.data_ptr<std::uint8_t>());
    ops::dequantize(bytes, layout, values);
  } else {
    const io::TensorEntry& entry = *tensor.plain.entry;
    std::vector<char> bytes(entry.bytes());
    tensor.plain.file->read(entry, 0, bytes.size(), bytes.data());
    to_float(entry.dtype, bytes.data(), static_cast<std::size_t>(values.numel()), values.data_ptr<float>());
  }
  return values;
}

at::Tensor MergedModel::values(const ModelTensor& tensor) {
  at::Tensor merged = base_values(tensor);
  const Factors* factors = factors_of(*tensor.param);
  if (factors == nullptr) return merged;
  auto* rows = reinterpret_cast<char*>(merged.data_ptr<float>());
  merge_rows(DType::f32, rows, DType::f32, rows, tensor.columns(), tensor.first_row, tensor.rows(), *factors);
  return merged;
}

struct RowMerger::Impl {
  Impl(const ModelConfig& config, const fs::path& dir)
      : spec(ModelSpec::build(config, Finetuning::lora, read_adapter_config(dir))), adapter(spec, dir) {}

  const ModelSpec spec;
  const Adapter adapter;
  std::mutex mutex;
  std::string current;  ///< whose factors they are
  std::shared_ptr<const Factors> factors;
};

RowMerger::RowMerger(const ModelConfig& config, const fs::path& adapter) : impl_(std::make_unique<Impl>(config, adapter)) {}
RowMerger::~RowMerger() = default;

const ModelSpec& RowMerger::spec() const {
  return impl_->spec;
}

bool RowMerger::changes(const ParamSpec& base) const {
  return impl_->adapter.has(base);
}

const io::TensorLocation* RowMerger::saved(const ParamSpec& base) const {
  return impl_->adapter.saved(base);
}

void RowMerger::merge(const ParamSpec& base, DType type, std::int64_t first, std::int64_t count, char* rows) {
  std::shared_ptr<const Factors> factors;
  {
    const std::lock_guard lock(impl_->mutex);
    if (std::exchange(impl_->current, base.name) != base.name)
      impl_->factors = std::make_shared<const Factors>(*impl_->adapter.find(base));
    factors = impl_->factors;
  }
  merge_rows(type, rows, type, rows, base.shape.back(), first, count, *factors);
}

}  // namespace qft::model

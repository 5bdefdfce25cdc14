#include "merge.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/load.h"
#include "qft/ops/cpu/kernels.h"
#include "qft/ops/quantized.h"

#include <cstring>
#include <utility>

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

}  // namespace

Factors::Factors(const io::TensorFile& file, const ParamSpec& a, const ParamSpec& b, std::vector<LoraRows> rows, std::int64_t out)
    : a_(read_factor(file, a)),
      b_(read_factor(file, b)),
      rows_(std::move(rows)),
      out_(out),
      in_(a.shape.back()),
      rank_(b.shape.back()) {
  for (const LoraRows& part : rows_) b_rows_ += part.rows;
}

Factors::Row Factors::at(std::int64_t row) const {
  const std::int64_t expert = row / out_, within = row % out_;
  std::int64_t rank0 = expert * rank_ * std::ssize(rows_), b_row = expert * b_rows_;
  for (const LoraRows& part : rows_) {
    if (within >= part.row0 && within < part.row0 + part.rows)
      return {b_.data() + (b_row + within - part.row0) * rank_, a_.data() + rank0 * in_};
    rank0 += rank_;
    b_row += part.rows;
  }
  return {};
}

Adapter::Adapter(const ModelSpec& spec, const fs::path& dir) : file_(open_adapter(dir)) {
  std::size_t used = 0;
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& param : unit.params) {
      if (!is_factor(param.role)) continue;
      for (const FileTensor& part : param.in_files()) {
        require_shape(*file_, factor_of(*file_, part.name), part.shape);
        ++used;
      }
      Pair& pair = pairs_[base_weight_of(param)];
      (param.role == Role::lora_a ? pair.a : pair.b) = &param;
      pair.layer = unit.layer;
    }
  require_all_used(*file_, used);
  for (auto& [name, pair] : pairs_) pair.rows = rows_of(spec, pair, name);
}

std::optional<Factors> Adapter::find(const ParamSpec& base) const {
  const auto it = pairs_.find(base.name);
  if (it == pairs_.end()) return {};
  const std::int64_t out = base.shape[base.shape.size() - 2];
  return Factors(*file_, *it->second.a, *it->second.b, it->second.rows, out);
}

/// All rows of a linear; of a stack those of its linears that are wrapped.
std::vector<LoraRows> Adapter::rows_of(const ModelSpec& spec, const Pair& pair, const std::string& base) {
  for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(pair.layer)])
    for (const ParamGroup& group : sublayer.params)
      if (group.is_stack() && base.ends_with(group.stack.path + "." + group.stack.name)) return lora_rows(spec.lora, group);
  return {{0, 0, pair.b->shape[0], spec.lora.rank, spec.lora.scaling()}};
}

void merge_row(DType from_type, const char* from, DType to_type, char* to, const float* b, const float* a, std::int64_t rank,
               std::int64_t columns, float scaling, std::vector<float>& sums, std::vector<float>& values) {
  const auto kernels = ops::cpu::activation_kernels<float>();
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::int64_t first = 0; first < columns; first += kColumns) {
    const std::int64_t n = std::min(kColumns, columns - first);
    for (std::int64_t k = 0; k < rank; ++k) kernels.add_to_float(sums.data() + first, a + k * columns + first, b[k], n);
  }
  const auto count = static_cast<std::size_t>(columns);
  if (from_type == DType::f64 && to_type == DType::f64) {
    std::vector<double> wide(count);
    std::memcpy(wide.data(), from, count * sizeof(double));
    for (std::size_t i = 0; i < count; ++i) wide[i] += static_cast<double>(scaling) * static_cast<double>(sums[i]);
    std::memcpy(to, wide.data(), count * sizeof(double));
    return;
  }
  to_float(from_type, from, count, values.data());
  kernels.add_to_float(values.data(), sums.data(), scaling, columns);
  from_float(to_type, values.data(), count, to);
}

MergedModel::MergedModel(const fs::path& base, const fs::path& adapter)
    : files_(io::ModelFiles::open(base)), spec_(std::make_unique<ModelSpec>(spec_of(base, files_, adapter))) {
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
        tensors_.push_back({&p, entry.name, entry.shape, entry.dtype, source.at, source.begin / p.shape.back()});
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
    std::int64_t read = 0;
    const std::vector<char> bytes = read_tensor(files_, tensor.name, read);
    to_float(tensor.type, bytes.data(), static_cast<std::size_t>(values.numel()), values.data_ptr<float>());
  }
  return values;
}

at::Tensor MergedModel::values(const ModelTensor& tensor) {
  at::Tensor merged = base_values(tensor);
  const Factors* factors = factors_of(*tensor.param);
  if (factors == nullptr) return merged;
  const std::int64_t columns = tensor.columns();
  for_row_parts(tensor.rows(), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> sums(static_cast<std::size_t>(columns)), room(static_cast<std::size_t>(columns));
    for (std::int64_t r = begin; r < end; ++r) {
      const Factors::Row row = factors->at(tensor.first_row + r);
      auto* values = reinterpret_cast<char*>(merged.data_ptr<float>() + r * columns);
      if (row.b != nullptr)
        merge_row(DType::f32, values, DType::f32, values, row.b, row.a, factors->rank(), columns, factors->scaling(), sums, room);
    }
  });
  return merged;
}

}  // namespace qft::model

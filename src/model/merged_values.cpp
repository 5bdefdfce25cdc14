#include "merged_values.h"

#include "qft/core/convert.h"
#include "qft/io/model_files.h"
#include "qft/ops/quantized.h"

#include <algorithm>
#include <vector>

#include "export_formats.h"
#include "stored/stored_format.h"
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace qft::model {
namespace {

at::Tensor empty_values(const ModelTensor& tensor) {
  return at::empty({tensor.rows() * tensor.columns()}, at::kFloat);
}

/// Decodes a tensor that the files hold quantised, merges it and writes it as `type`.
void write_decoded(MergedModel& model, const ModelTensor& tensor, DType type, io::ModelWriter& writer) {
  const at::Tensor values = merged_values(model, tensor);
  constexpr std::int64_t kChunkBytes = 16 << 20;
  const std::int64_t step = kChunkBytes / size_of(type);
  std::vector<char> bytes;
  for (std::int64_t first = 0; first < values.numel(); first += step) {
    const auto count = static_cast<std::size_t>(std::min(step, values.numel() - first));
    bytes.resize(count * size_of(type));
    from_float(type, values.data_ptr<float>() + first, count, bytes.data());
    writer.append(bytes.data(), bytes.size());
  }
}

}  // namespace

at::Tensor base_values(const MergedModel& model, const ModelTensor& tensor) {
  const at::Tensor values = empty_values(tensor);
  if (!tensor.is_stored()) {
    tensor.plain.file->read_floats(*tensor.plain.entry, values.data_ptr<float>());
    return values;
  }
  const ops::QuantizedLayout& layout = tensor.param->packed;
  const at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
  read_stored(*model.stored(), model.files(), tensor.name, layout, bytes.data_ptr<std::uint8_t>());
  ops::dequantize(bytes, layout, values);
  return values;
}

at::Tensor merged_values(MergedModel& model, const ModelTensor& tensor) {
  if (const io::TensorLocation* whole = model.replacement(*tensor.param)) {
    const at::Tensor values = empty_values(tensor);
    whole->file->read_floats(*whole->entry, values.data_ptr<float>());
    return values;
  }
  const at::Tensor merged = base_values(model, tensor);
  if (const WeightChange* change = model.change_of(*tensor.param)) {
    auto* rows = reinterpret_cast<char*>(merged.data_ptr<float>());
    change->apply(DType::f32, rows, DType::f32, rows, tensor.columns(), tensor.first_row, tensor.rows());
  }
  return merged;
}

const ExportCode& export_code() {
  static constexpr ExportCode kCode{make_stored_format, weight_storage_of, write_decoded, export_bitsandbytes, export_gguf};
  return kCode;
}

}  // namespace qft::model

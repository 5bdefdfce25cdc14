// A model's weights with an adapter's added, as files are written from them. Private to model.
#pragma once

#include "qft/core/dtype.h"
#include "qft/core/workers.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "stored/stored_format.h"
#include <ATen/core/Tensor.h>

namespace qft::model {

/// The tensors of an adapter for one parameter.
struct AdapterTensors {
  const ParamSpec *a = nullptr, *b = nullptr, *magnitude = nullptr;
  int layer = 0;
  std::vector<LoraRows> rows;
};

/// Their values, in fp32: A [experts, ranks, in], B [experts, rows, rank], magnitudes [rows]; experts is 1 but for a stack.
class Factors {
 public:
  Factors(const io::TensorFile& file, const AdapterTensors& tensors, std::int64_t out);

  struct Row {
    const float *b = nullptr, *a = nullptr;  ///< [rank], [rank, in]
    std::int64_t rank = 0;                   ///< 0: the row is left alone
    float scaling = 0;
    const float* magnitude = nullptr;  ///< DoRA's, or null
  };
  /// Of row `row` of the parameter seen as a matrix with `in` columns.
  Row at(std::int64_t row) const;

 private:
  std::vector<float> a_, b_, magnitudes_;
  std::vector<LoraRows> rows_;
  std::int64_t out_, in_, rank_, b_rows_ = 0;
};

/// An open adapter whose tensors are those that its configuration asks for.
class Adapter {
 public:
  Adapter(const ModelSpec& spec, const std::filesystem::path& dir);

  /// Nothing where the adapter leaves the parameter alone.
  std::optional<Factors> find(const ParamSpec& base) const;
  bool has(const ParamSpec& base) const { return of_.contains(base.name); }
  /// A base tensor that the adapter has whole; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const;

 private:
  static std::vector<LoraRows> rows_of(const Layer& layer, const std::string& base);

  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, AdapterTensors> of_;  ///< by the name of the base weight
  std::map<std::string, io::TensorLocation> saved_;
};

/// to = from + scaling * B A, with DoRA times each row's factor, for rows [first, first + count) of the parameter seen as a
/// matrix; on all cores. `from` may be `to` where the types are one.
void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors);

/// Calls f(begin, end) on all cores, so that the parts cover [0, rows).
template <class F>
void for_row_parts(std::int64_t rows, const F& f) {
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, rows);
  run_workers(static_cast<int>(parts), [&](int part) { f(rows * part / parts, rows * (part + 1) / parts); });
}

/// A tensor that a plain model in Hugging Face layout has.
struct ModelTensor {
  const ParamSpec* param = nullptr;
  std::string name;
  Shape shape;
  DType type = DType::f32;     ///< in the files; of what is quantised there, that of the files' other weights
  io::TensorLocation plain;    ///< where the files have it so, or the adapter has it whole
  std::int64_t first_row = 0;  ///< of the parameter seen as a matrix, with which it begins

  bool is_stored() const { return plain.entry == nullptr; }
  std::int64_t columns() const { return param->shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(Box::whole(shape).elements()) / columns(); }
};

/// A base model, plain or quantised, with an adapter or without.
class MergedModel {
 public:
  /// `earlier`: adapters that are merged before the last one. Throws Error where the files do not belong together.
  MergedModel(const std::filesystem::path& base, const std::vector<std::filesystem::path>& earlier,
              const std::filesystem::path& adapter);
  MergedModel(const MergedModel&) = delete;
  MergedModel& operator=(const MergedModel&) = delete;

  const ModelSpec& spec() const { return *spec_; }
  const io::ModelFiles& files() const { return files_; }
  /// Of the decoder, in the order of the units.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  /// nullptr where the adapter leaves the parameter alone. Valid until it is asked for another's.
  const Factors* factors_of(const ParamSpec& param);
  /// Whether the adapter changes the parameter, or has it whole.
  bool is_changed(const ParamSpec& param) const {
    return adapter_ && (adapter_->has(param) || adapter_->saved(param) != nullptr);
  }
  /// The whole tensor with the adapter's part, fp32, [elements].
  at::Tensor values(const ModelTensor& tensor);
  /// The same without the adapter's part.
  at::Tensor base_values(const ModelTensor& tensor) const;

 private:
  io::ModelFiles files_;
  std::unique_ptr<ModelSpec> spec_;
  std::unique_ptr<StoredFormat> stored_;
  std::optional<Adapter> adapter_;
  std::vector<ModelTensor> tensors_;
  const ParamSpec* current_ = nullptr;
  std::optional<Factors> factors_;  ///< of `current_`
};

}  // namespace qft::model

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

/// The factors of one parameter, in fp32: A [experts, ranks, in], B [experts, rows, rank]; experts is 1 but for a stack.
class Factors {
 public:
  Factors(const io::TensorFile& file, const ParamSpec& a, const ParamSpec& b, std::vector<LoraRows> rows, std::int64_t out);

  struct Row {
    const float *b = nullptr, *a = nullptr;  ///< [rank], [rank, in]; nullptr: the row is left alone
  };
  /// Of row `row` of the parameter seen as a matrix with `in` columns.
  Row at(std::int64_t row) const;
  std::int64_t rank() const { return rank_; }
  float scaling() const { return static_cast<float>(rows_.front().scaling); }

 private:
  std::vector<float> a_, b_;
  std::vector<LoraRows> rows_;
  std::int64_t out_, in_, rank_, b_rows_ = 0;
};

/// An open adapter whose tensors are those that its configuration asks for.
class Adapter {
 public:
  Adapter(const ModelSpec& spec, const std::filesystem::path& dir);

  /// Nothing where the adapter leaves the parameter alone.
  std::optional<Factors> find(const ParamSpec& base) const;

 private:
  struct Pair {
    const ParamSpec *a = nullptr, *b = nullptr;
    int layer = 0;
    std::vector<LoraRows> rows;
  };
  static std::vector<LoraRows> rows_of(const ModelSpec& spec, const Pair& pair, const std::string& base);

  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, Pair> pairs_;
};

/// to[columns] = from[columns] + scaling * b A, with b [rank] one row of B; `from` may be `to` where the types are one. `sums`
/// and `values` have room for a row.
void merge_row(DType from_type, const char* from, DType to_type, char* to, const float* b, const float* a, std::int64_t rank,
               std::int64_t columns, float scaling, std::vector<float>& sums, std::vector<float>& values);

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
  io::TensorLocation plain;    ///< where the files have it so
  std::int64_t first_row = 0;  ///< of the parameter seen as a matrix, with which it begins

  bool is_stored() const { return plain.entry == nullptr; }
  std::int64_t columns() const { return param->shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(Box::whole(shape).elements()) / columns(); }
};

/// A base model, plain or quantised, with an adapter or without.
class MergedModel {
 public:
  /// Throws Error where the files do not belong together.
  MergedModel(const std::filesystem::path& base, const std::filesystem::path& adapter);
  MergedModel(const MergedModel&) = delete;
  MergedModel& operator=(const MergedModel&) = delete;

  const ModelSpec& spec() const { return *spec_; }
  const io::ModelFiles& files() const { return files_; }
  /// Of the decoder, in the order of the units.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  /// nullptr where the adapter leaves the parameter alone. Valid until it is asked for another's.
  const Factors* factors_of(const ParamSpec& param);
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

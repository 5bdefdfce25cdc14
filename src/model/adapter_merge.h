// What an adapter makes of base weights: the same for an export as for weights that are loaded. Needs no LibTorch. Private to
// model.
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

namespace qft::model {

/// The tensors of an adapter for one parameter, and the rows that they change.
struct AdapterTensors {
  const ParamSpec *a = nullptr, *b = nullptr, *magnitude = nullptr;  ///< no magnitude without DoRA
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
    float scaling = 0.0F;
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
  /// `spec`: of its model with it. Throws Error where the files are of another one.
  Adapter(const ModelSpec& spec, std::unique_ptr<io::TensorFile> file);

  /// Nothing where it has no factors of the parameter.
  std::optional<Factors> find(const ParamSpec& base) const;
  bool has(const ParamSpec& base) const { return of_.contains(base.name); }
  /// A base tensor that it has whole, in place of the model's; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const;
  bool changes(const ParamSpec& base) const { return has(base) || saved(base) != nullptr; }

 private:
  static std::vector<LoraRows> rows_of(const Layer& layer, const std::string& base);

  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, AdapterTensors> of_;  ///< by the name of the base weight
  std::map<std::string, io::TensorLocation> saved_;
};

/// to = from + scaling B A, with DoRA each row times its magnitude over its norm, for rows [first, first + count) of the
/// parameter seen as a matrix; on all cores. `from` may be `to` where the types are one.
void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors);

/// Calls f(begin, end) on all cores, so that the parts cover [0, rows).
template <class F>
void for_row_parts(std::int64_t rows, const F& f) {
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, rows);
  run_workers(static_cast<int>(parts), [&](int part) { f(rows * part / parts, rows * (part + 1) / parts); });
}

}  // namespace qft::model

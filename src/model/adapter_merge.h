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
  /// `spec`: of its model with it. Throws Error where the files are of another one.
  Adapter(const ModelSpec& spec, const std::filesystem::path& dir);

  /// Nothing where it has no factors of the parameter.
  std::optional<Factors> find(const ParamSpec& base) const;
  bool has(const ParamSpec& base) const { return pairs_.contains(base.name); }
  /// A base tensor that it has whole, in place of the model's; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const;
  bool changes(const ParamSpec& base) const { return has(base) || saved(base) != nullptr; }

 private:
  struct Pair {
    const ParamSpec *a = nullptr, *b = nullptr;
    int layer = 0;
    std::vector<LoraRows> rows;
  };
  static std::vector<LoraRows> rows_of(const ModelSpec& spec, const Pair& pair, const std::string& base);

  std::unique_ptr<io::TensorFile> file_;
  std::map<std::string, Pair> pairs_;
  std::map<std::string, io::TensorLocation> saved_;
};

/// to = from + scaling B A, for rows [first, first + count) of the parameter seen as a matrix; on all cores. `from` may be `to`
/// where the types are one.
void merge_rows(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                std::int64_t count, const Factors& factors);

/// Calls f(begin, end) on all cores, so that the parts cover [0, rows).
template <class F>
void for_row_parts(std::int64_t rows, const F& f) {
  const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, rows);
  run_workers(static_cast<int>(parts), [&](int part) { f(rows * part / parts, rows * (part + 1) / parts); });
}

}  // namespace qft::model

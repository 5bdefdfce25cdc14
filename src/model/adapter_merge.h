// What an adapter makes of rows of base weights: the same for an export as for weights that are loaded. Private to model.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace qft::model {

/// An adapter with the factors of one parameter at a time.
class RowMerger {
 public:
  /// Throws Error where the adapter is not of a model of this configuration.
  RowMerger(const ModelConfig& config, const std::filesystem::path& adapter);
  ~RowMerger();

  const ModelSpec& spec() const;
  /// Whether rows of the parameter change. merge() is for such ones only.
  bool changes(const ParamSpec& base) const;
  /// Rows [first, first + count) of the parameter seen as a matrix, of `type`, in place. Thread-safe.
  void merge(const ParamSpec& base, DType type, std::int64_t first, std::int64_t count, char* rows);
  /// A base tensor that the adapter has whole; nullptr: it does not have it.
  const io::TensorLocation* saved(const ParamSpec& base) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qft::model

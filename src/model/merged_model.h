// A model's weights combined with adapters, for writing files. Private to model.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adapter_merge.h"

namespace qft::model {

class StoredFormat;
struct ExportCode;

/// A tensor of a plain model in Hugging Face layout.
struct ModelTensor {
  const ParamSpec* param = nullptr;
  std::string name;
  Shape shape;
  DType type = DType::f32;     ///< in the files; for a quantised tensor, the type of the files' other weights
  io::TensorLocation plain;    ///< place in the files if they hold it plain
  std::int64_t first_row = 0;  ///< its first row in the parameter viewed as a matrix

  bool is_stored() const { return plain.entry == nullptr; }
  std::int64_t columns() const { return param->shape.back(); }
  std::int64_t rows() const { return static_cast<std::int64_t>(Box::whole(shape).elements()) / columns(); }
};

/// A base model, plain or quantised, with or without an adapter. `earlier` adapters are merged into it as by merge_adapters().
class MergedModel {
 public:
  /// Throws Error if the files do not match, and as merge_adapters(); ConfigError if `code` is null and the base is quantised.
  MergedModel(const std::filesystem::path& base, const std::filesystem::path& adapter,
              const std::vector<std::filesystem::path>& earlier, const ExportCode* code);
  ~MergedModel();
  MergedModel(const MergedModel&) = delete;
  MergedModel& operator=(const MergedModel&) = delete;

  const ModelSpec& spec() const { return *spec_; }
  const io::ModelFiles& files() const { return files_; }
  /// The decoder's tensors, in the order of the units.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  /// Returns true if the adapter wraps the parameter or has it in full.
  bool changes(const ParamSpec& param) const;
  /// Returns nullptr if the adapter does not wrap the parameter. Valid until the next call for another parameter.
  const WeightChange* change_of(const ParamSpec& param);
  /// Returns the adapter's tensor that replaces the parameter; nullptr if there is none.
  const io::TensorLocation* replacement(const ParamSpec& param) const;
  /// Returns the format of the files' quantised weights; nullptr if there are none.
  const StoredFormat* stored() const { return stored_.get(); }

 private:
  io::ModelFiles files_;
  std::unique_ptr<ModelSpec> spec_;
  std::unique_ptr<StoredFormat> stored_;
  std::optional<Adapter> adapter_;
  std::vector<ModelTensor> tensors_;
  const ParamSpec* current_ = nullptr;
  std::unique_ptr<const WeightChange> change_;  ///< for `current_`
};

}  // namespace qft::model

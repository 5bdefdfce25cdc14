// A model's weights with those of adapters, as files are written from them. Private to model.
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

/// A base model, plain or quantised, with an adapter or without; `earlier` ones are a part of it, as merge_adapters() has it.
class MergedModel {
 public:
  /// Throws Error where the files do not belong together, and as merge_adapters(); ConfigError where `code` is null and the base
  /// is quantised.
  MergedModel(const std::filesystem::path& base, const std::filesystem::path& adapter,
              const std::vector<std::filesystem::path>& earlier, const ExportCode* code);
  ~MergedModel();
  MergedModel(const MergedModel&) = delete;
  MergedModel& operator=(const MergedModel&) = delete;

  const ModelSpec& spec() const { return *spec_; }
  const io::ModelFiles& files() const { return files_; }
  /// Of the decoder, in the order of the units.
  const std::vector<ModelTensor>& tensors() const { return tensors_; }
  /// Whether the adapter wraps the parameter or has it whole.
  bool changes(const ParamSpec& param) const;
  /// nullptr where the adapter does not wrap the parameter. Valid until it is asked for another's.
  const WeightChange* change_of(const ParamSpec& param);
  /// The tensor that the adapter has in place of the parameter's; nullptr: it has none.
  const io::TensorLocation* saved(const ParamSpec& param) const;
  /// How the files have what is quantised there; nullptr: nothing is.
  const StoredFormat* stored() const { return stored_.get(); }

 private:
  io::ModelFiles files_;
  std::unique_ptr<ModelSpec> spec_;
  std::unique_ptr<StoredFormat> stored_;
  std::optional<Adapter> adapter_;
  std::vector<ModelTensor> tensors_;
  const ParamSpec* current_ = nullptr;
  std::unique_ptr<const WeightChange> change_;  ///< of `current_`
};

}  // namespace qft::model

// What tensors of files must be to belong to a model. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qft::model {

class StoredFormat;

/// Throws Error unless the tensor has this shape and a floating element type.
void require_shape(const io::TensorFile& file, const io::TensorEntry& entry, const std::vector<std::int64_t>& shape);

/// Throws Error naming tensors of the files that the architecture does not have (values that are derived, and
/// the second name of a tied head, may be there).
void refuse_unexpected(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored = nullptr);
/// The same, and throws Error where a base tensor is missing or of another shape. `stored`: of models that are quantised in their
/// files.
void require_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored);

/// The weights of an adapter as read_adapter_config() describes it; throws Error where they are missing.
std::unique_ptr<io::TensorFile> open_adapter(const std::filesystem::path& dir);
/// The tensor of a factor, under one of the names that files may have for it. Throws Error where there is none.
const io::TensorEntry& factor_of(const io::TensorFile& file, const std::string& name);
/// Throws Error unless the adapter's file holds the tensors that its configuration asks for, and no others: says what these mean.
void require_adapter_tensors(const ModelSpec& spec, const io::TensorFile& file);
/// The name of the base parameter that an adapter's parameter changes.
std::string base_weight_of(const ParamSpec& factor);

}  // namespace qft::model

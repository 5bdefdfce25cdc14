// Finds parameters in files, and checks that the files' tensors match a model. Needs no LibTorch. Private to model.
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

/// Throws Error naming file tensors that the architecture does not have. Derived values and the second name of a tied head are
/// allowed.
void reject_unexpected_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored = nullptr);
/// Also throws Error if a base tensor is missing or has another shape. `stored`: set if the model's files are quantised.
void require_tensors(const ModelSpec& spec, const io::ModelFiles& files, const StoredFormat* stored);

/// Opens an adapter's weights as read_adapter_config() describes them. Throws Error if they are missing.
std::unique_ptr<io::TensorFile> open_adapter(const std::filesystem::path& dir);
/// Returns a factor's tensor, under one of the names that files may have for it. Throws Error if there is none.
const io::TensorEntry& factor_of(const io::TensorFile& file, const std::string& name);
/// Throws Error, explaining the meaning of the tensors, unless the adapter's file holds exactly those that its configuration
/// requires.
void require_adapter_tensors(const ModelSpec& spec, const io::TensorFile& file);
/// Returns the name of the base parameter that an adapter's parameter changes.
std::string base_weight_of(const ParamSpec& factor);

/// A tensor in a file, and the index of its first element in the logical tensor.
struct Source {
  io::TensorLocation at;
  std::int64_t begin = 0;
};
/// Finds a base parameter in a model's files: one tensor, or the parts that ParamSpec::parts names. Throws Error if a tensor is
/// missing, has another shape or is not of a floating type.
std::vector<Source> sources_of(const ParamSpec& param, const io::ModelFiles& files);

/// Returns the names that a plain model has for the tensors of a parameter that these files hold quantised, one per piece.
std::vector<std::string> stored_weights(const ParamSpec& param);

}  // namespace qft::model

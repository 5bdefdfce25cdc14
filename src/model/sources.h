// Finds parameters in files. Needs no LibTorch. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <vector>

namespace qft::model {

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

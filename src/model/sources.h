// Where parameters are in files. Needs no LibTorch. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <vector>

namespace qft::model {

/// A tensor in a file, and the element of the logical tensor with which it begins.
struct Source {
  io::TensorLocation at;
  std::int64_t begin = 0;
};
/// Where a base parameter is in a model's files: in one tensor, or in the parts that ParamSpec::parts names. Throws Error where a
/// tensor is missing, or has another shape or no floating type.
std::vector<Source> sources_of(const ParamSpec& param, const io::ModelFiles& files);

/// The names under which a plain model has the tensors of a parameter that these files hold quantised, one a piece.
std::vector<std::string> stored_weights(const ParamSpec& param);

}  // namespace qft::model

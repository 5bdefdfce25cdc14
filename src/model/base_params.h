// The base tensors of a unit, with their places in its flat buffers. Private to model.
#pragma once

#include "qft/model/spec.h"

#include <string>
#include <vector>

namespace qft::model {

/// A base tensor, or one of a head, without a place in a buffer.
struct BaseTensor {
  std::string path;
  Cut rows;             ///< its first dimension
  Shape inner = {};     ///< its other dimensions
  bool decays = false;  ///< weight decay, like HF Trainer: false for biases and norms
  Role role = Role::base;
};

/// Places a tensor that no linear has; its name is `prefix` and its path.
void place_single(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const BaseTensor& tensor);
/// Places the tensors of a group.
void place_group(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const ParamGroup& group,
                 const WeightStorage& weight_storage);

/// Returns true if a base tensor of layer `layer` (-1: outside the layers) trains.
bool trains(const ModelSpec& spec, int layer, const std::string& path, const std::string& name);
/// Returns true if a linear's weight with this storage format is kept quantised. If a full model is quantised, nothing trains.
/// Throws ConfigError if the files hold a weight quantised that would train.
bool is_packed(const ModelSpec& spec, const std::string& name, bool trainable, const ops::Quantization& quantization);

}  // namespace qft::model

// Applies each adapter kind to base weights. Needs no LibTorch. Private to model.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace qft::model {

/// An adapter's change of a base weight.
class WeightChange {
 public:
  virtual ~WeightChange() = default;
  /// Changes rows [first, first + count) of the parameter, viewed as a matrix [rows, columns], on all cores. `from` may equal
  /// `to` if both types are the same. Thread-safe.
  virtual void apply(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                     std::int64_t count) const = 0;
};

/// A base weight and the adapter's parameters for it.
struct ChangedWeight {
  const ParamSpec* base = nullptr;
  const Layer* layer = nullptr;
  std::vector<const ParamSpec*> params;
};

/// Reads the adapter's tensors for a weight.
std::unique_ptr<WeightChange> change_of(const AdapterConfig& config, const io::TensorFile& file, const ChangedWeight& weight);

std::unique_ptr<WeightChange> oft_change(const OftConfig& config, const io::TensorFile& file, const ChangedWeight& weight);
std::unique_ptr<WeightChange> lora_change(const io::TensorFile& file, const ChangedWeight& weight);

}  // namespace qft::model

// What the kinds of adapters make of base weights. Needs no LibTorch. Private to model.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/model_files.h"
#include "qft/model/spec.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace qft::model {

/// What an adapter makes of the rows of a base weight.
class WeightChange {
 public:
  virtual ~WeightChange() = default;
  /// Of rows [first, first + count) of the parameter seen as a matrix [rows, columns], on all cores. `from` may be `to` where the
  /// types are one. Thread-safe.
  virtual void apply(DType from_type, const char* from, DType to_type, char* to, std::int64_t columns, std::int64_t first,
                     std::int64_t count) const = 0;
};

/// A base weight, and the adapter's parameters for it.
struct ChangedWeight {
  const ParamSpec* base = nullptr;
  const Layer* layer = nullptr;
  std::vector<const ParamSpec*> params;
};

/// Reads the adapter's tensors of a weight.
std::unique_ptr<WeightChange> change_of(const AdapterConfig& config, const io::TensorFile& file, const ChangedWeight& weight);

std::unique_ptr<WeightChange> oft_change(const OftConfig& config, const io::TensorFile& file, const ChangedWeight& weight);
std::unique_ptr<WeightChange> lora_change(const io::TensorFile& file, const ChangedWeight& weight);

}  // namespace qft::model

// The columns of a micro-batch on its device (core/columns.h).
#pragma once

#include "qft/core/columns.h"

#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace qft::model {

struct InputColumn {
  IndexSpace space = IndexSpace::item;
  at::Tensor values = {};  ///< [entries, ...] on the device; undefined if entries are lists
  Column lists = {};       ///< entries that are lists, in host memory
  at::Tensor head = {};  ///< [V, E] if `values` [entries, E] are rows of hidden states of another model: its head; else undefined
};

/// By name. Tensors are shared between copies.
class InputColumns {
 public:
  void set(std::string_view name, InputColumn column) { columns_.insert_or_assign(std::string(name), std::move(column)); }
  bool has(std::string_view name) const { return columns_.contains(name); }
  /// Returns the column. Throws Error with its name if the micro-batch lacks it.
  const InputColumn& at(std::string_view name) const;
  /// Returns the column's values; undefined if the micro-batch lacks the column.
  at::Tensor find(std::string_view name) const;

 private:
  std::map<std::string, InputColumn, std::less<>> columns_;
};

}  // namespace qft::model

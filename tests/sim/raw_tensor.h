// Tensors as stored by queued work: addresses, sizes, strides and types, but no reference that keeps memory alive.
#pragma once

#include <cstdint>
#include <vector>

#include "sim.h"
#include <ATen/core/Tensor.h>

namespace qft::sim {

class RawTensor {
 public:
  explicit RawTensor(const at::Tensor& tensor);

  /// Returns a host tensor over the memory that queued work may use.
  at::Tensor cpu() const { return cpu(storage()); }
  /// The same in a storage made by storage(); tensors that share memory must share the storage.
  at::Tensor cpu(const c10::Storage& storage) const;
  c10::Storage storage() const;
  const void* storage_data() const { return storage_data_; }

  /// Adds the bytes of its elements.
  void add_accesses(bool write, std::vector<Access>& accesses) const;

 private:
  void* storage_data_;
  std::size_t storage_bytes_;
  std::int64_t offset_;
  c10::DimVector sizes_, strides_;
  c10::ScalarType type_;
};

inline bool on_sim(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone();
}

}  // namespace qft::sim

// Keys and values of a sequence's tokens so far, one pair of tensors a layer, allocated once.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/model/ops/attention.h"
#include "qft/model/spec.h"

namespace qft::infer {

/// Bytes that the keys and values of one token take in all layers.
std::int64_t kv_bytes_per_token(const model::ModelConfig& config, at::ScalarType dtype);

class KvCache {
 public:
  /// Room for `capacity` tokens of one sequence.
  KvCache(const model::ModelConfig& config, std::int64_t capacity, at::ScalarType dtype, c10::Device device);

  std::int64_t capacity() const { return capacity_; }
  std::int64_t length() const { return length_; }
  /// Forgets everything from token `length` on.
  void truncate(std::int64_t length);
  /// After all layers have stored `tokens` new rows.
  void advance(std::int64_t tokens) { length_ += tokens; }

  /// Stores rows [length, length + T) of layer's k and v, each [T, kv_heads, head_dim]. Returns what those T tokens see.
  model::ops::CachedSequence store(int layer, const at::Tensor& k, const at::Tensor& v);

 private:
  std::int64_t capacity_, length_ = 0;
  std::vector<at::Tensor> keys_, values_;  ///< [kv_heads, capacity, head_dim]
};

}  // namespace qft::infer

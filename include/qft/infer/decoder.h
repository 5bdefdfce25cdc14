// Token-by-token forward passes with a key-value cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/infer/kv_cache.h"
#include "qft/parallel/instance.h"

namespace qft::infer {

/// Holds the weights of an instance acquired for as long as it lives. One sequence.
class Decoder {
 public:
  /// `capacity`: tokens of prompt and answer together.
  Decoder(parallel::Instance& instance, std::int64_t capacity);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Feeds tokens after those in the cache. Returns the logits [vocab] that follow the last one, fp32 on the host;
  /// valid until the next call.
  at::Tensor forward(std::span<const std::int32_t> tokens);
  KvCache& cache() { return cache_; }

 private:
  void layer(int index, const at::Tensor& positions, at::Tensor& x);

  parallel::Instance& instance_;
  KvCache cache_;
  model::Weight embedding_, final_norm_, head_;
  std::vector<model::LayerWeights> layers_;
};

}  // namespace qft::infer

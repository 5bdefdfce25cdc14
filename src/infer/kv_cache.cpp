#include "qft/infer/kv_cache.h"

#include <ATen/ops/empty.h>

#include "qft/core/error.h"

namespace qft::infer {

KvCache::KvCache(const model::ModelConfig& config, std::int64_t capacity, at::ScalarType dtype, c10::Device device)
    : capacity_(capacity) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    keys_.push_back(at::empty({config.num_kv_heads, capacity, config.head_dim}, options));
    values_.push_back(at::empty({config.num_kv_heads, capacity, config.head_dim}, options));
  }
}

void KvCache::truncate(std::int64_t length) {
  QFT_ASSERT(length <= length_, "cannot truncate {} tokens to {}", length_, length);
  length_ = length;
}

void KvCache::store(int layer, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t tokens = k.size(0);
  require(length_ + tokens <= capacity_, "the key-value cache holds {} tokens, {} are needed: raise max_new_tokens", capacity_,
          length_ + tokens);
  keys_.at(static_cast<std::size_t>(layer)).narrow(1, length_, tokens).copy_(k.transpose(0, 1));
  values_.at(static_cast<std::size_t>(layer)).narrow(1, length_, tokens).copy_(v.transpose(0, 1));
}

at::Tensor KvCache::keys(int layer, std::int64_t tokens) const {
  return keys_.at(static_cast<std::size_t>(layer)).narrow(1, 0, tokens);
}

at::Tensor KvCache::values(int layer, std::int64_t tokens) const {
  return values_.at(static_cast<std::size_t>(layer)).narrow(1, 0, tokens);
}

}  // namespace qft::infer

#include "qft/infer/kv_cache.h"

#include <cstring>

#include <ATen/ops/empty.h>

#include "qft/core/error.h"

namespace qft::infer {
namespace {

/// Rows [T, heads, head_dim] to places [heads, first + T, head_dim].
void store_rows(const at::Tensor& rows, const at::Tensor& cache, std::int64_t first) {
  const at::Tensor place = cache.narrow(1, first, rows.size(0));
  if (!rows.is_cpu()) {
    place.copy_(rows.transpose(0, 1));
    return;
  }
  // The few rows of a decoding step cost less by hand than the call of a copy.
  const auto element = static_cast<std::int64_t>(rows.element_size()), bytes = rows.size(2) * element;
  const auto* from = static_cast<const char*>(rows.const_data_ptr());
  auto* to = static_cast<char*>(place.data_ptr());
  for (std::int64_t h = 0; h < rows.size(1); ++h)
    for (std::int64_t t = 0; t < rows.size(0); ++t)
      std::memcpy(to + h * place.stride(0) * element + t * bytes, from + (t * rows.stride(0) + h * rows.stride(1)) * element,
                  static_cast<std::size_t>(bytes));
}

}  // namespace

std::int64_t kv_bytes_per_token(const model::ModelConfig& config, at::ScalarType dtype) {
  return 2 * config.num_layers * config.num_kv_heads * config.head_dim * static_cast<std::int64_t>(c10::elementSize(dtype));
}

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

model::ops::CachedSequence KvCache::store(int layer, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t tokens = k.size(0);
  require(length_ + tokens <= capacity_, "the key-value cache holds {} tokens, {} are needed: raise max_new_tokens", capacity_,
          length_ + tokens);
  const auto& keys = keys_.at(static_cast<std::size_t>(layer));
  const auto& values = values_.at(static_cast<std::size_t>(layer));
  store_rows(k, keys, length_);
  store_rows(v, values, length_);
  return {tokens, length_ + tokens, keys, values};
}

}  // namespace qft::infer

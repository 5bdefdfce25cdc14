// Converts tensors to arguments of the embedding-noise kernels.
#pragma once

#include "qft/ops/embedding.h"

#include <cstdint>

#include "../common/tensor_args.h"
#include "embedding_noise_args.h"

namespace qft::ops {

template <class T>
EmbeddingNoise<T> embedding_noise_args(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha) {
  return {data<T>(x),
          rows.identity.sample_ids.const_data_ptr<std::int64_t>(),
          rows.identity.positions.const_data_ptr<std::int32_t>(),
          rows.lengths.const_data_ptr<std::int32_t>(),
          key.philox_key(),
          static_cast<float>(alpha),
          x.size(1)};
}

}  // namespace qft::ops

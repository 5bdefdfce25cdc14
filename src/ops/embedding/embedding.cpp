#include "qft/ops/embedding.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "../common/device_kernels.h"
#include "../common/philox_tensors.h"
#include "../common/tensors_cpu.h"
#include "embedding_noise_tensor_args.h"
#include <ATen/TensorOperators.h>
#include <c10/util/BFloat16.h>

namespace qft::ops {
namespace {

/// Columns per thread. Each thread walks all tokens, so that every sum runs in token order.
constexpr std::int64_t kColumnsPerThread = 64;

template <class To, class From, class Add>
void add_rows(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight, const VocabularyPart& vocabulary,
              Add add) {
  const auto* ids = tokens.const_data_ptr<std::int32_t>();
  const std::int64_t width = gy.size(1), count = gy.size(0), rows = gweight.size(0);
  at::parallel_for(0, width, kColumnsPerThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t) {
      const std::int64_t row = ids[t] - vocabulary.first;
      if (row < 0 || row >= rows) continue;
      add(data<To>(gweight) + row * width + begin, const_data<From>(gy) + t * width + begin, end - begin);
    }
  });
}

/// The rows of tokens in a part of the vocabulary that has `count` rows.
struct OwnRows {
  at::Tensor rows, elsewhere;  ///< int32 [T]; bool [T]: tokens of other parts, whose row here is 0

  OwnRows(const at::Tensor& tokens, const VocabularyPart& vocabulary, std::int64_t count) {
    const at::Tensor own = tokens - vocabulary.first;
    // A token outside the whole vocabulary keeps its row, which the device refuses.
    elsewhere = own.lt(0).logical_and_(tokens.ge(0)).logical_or_(own.ge(count).logical_and_(tokens.lt(vocabulary.whole)));
    rows = own.masked_fill(elsewhere, 0);
  }
};

}  // namespace

void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y,
                       const VocabularyPart& vocabulary) {
  if (tokens.is_cpu()) {
    const std::int64_t known = vocabulary.tokens(weight.size(0));
    const auto* first = tokens.const_data_ptr<std::int32_t>();
    const auto bad = std::find_if(first, first + tokens.numel(), [&](std::int32_t token) { return token < 0 || token >= known; });
    require(bad == first + tokens.numel(),
            "token {} is outside the embedding's {} rows: the data was packed with another tokenizer than the model's",
            bad == first + tokens.numel() ? 0 : *bad, known);
  }
  at::Tensor out = y;
  if (!vocabulary.shared()) {
    at::index_select_out(out, weight, 0, tokens);
    return;
  }
  const OwnRows own(tokens, vocabulary, weight.size(0));
  at::index_select_out(out, weight, 0, own.rows);
  out.masked_fill_(own.elsewhere.unsqueeze(1), 0.0);
}

void embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight,
                        const VocabularyPart& vocabulary) {
  if (tokens.size(0) == 0) return;
  const bool same = gweight.scalar_type() == gy.scalar_type();
  const bool done = (same || gweight.scalar_type() == at::kFloat) && cpu::with_kernel_type(gy, [&]<class T>() {
                      const auto kernels = cpu::add_kernels<T>();
                      if (same)
                        add_rows<T, T>(tokens, gy, gweight, vocabulary, kernels.add);
                      else
                        add_rows<float, T>(tokens, gy, gweight, vocabulary, [&](float* to, const T* from, std::int64_t n) {
                          kernels.add_to_float(to, from, 1.0F, n);
                        });
                    });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(gy);
  if (kernels != nullptr && kernels->embedding_backward(tokens, gy, gweight, vocabulary)) return;
  const at::Tensor given = gy.to(gweight.scalar_type());
  if (!vocabulary.shared()) {
    gweight.index_add_(0, tokens, given);
    return;
  }
  const OwnRows own(tokens, vocabulary, gweight.size(0));
  gweight.index_add_(0, own.rows, given.masked_fill(own.elsewhere.unsqueeze(1), 0.0));
}

namespace generic {

void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha) {
  const at::ScalarType type = accumulate_dtype(x.scalar_type());
  const std::int64_t width = x.size(1);
  const at::Tensor uniform = (philox_halves(rows.identity, width, key.philox_key()) * 2 - 65535).to(type) / 65536.0;
  const at::Tensor magnitude = (rows.lengths.to(type) * static_cast<double>(width)).rsqrt() * alpha;
  const at::Tensor first = x.narrow(0, 0, rows.identity.positions.size(0));
  first.copy_((first.to(type) + uniform * magnitude.unsqueeze(1)).to(x.scalar_type()));
}

}  // namespace generic

namespace {

template <class T>
void noise_rows(const EmbeddingNoise<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const auto id = static_cast<std::uint64_t>(a.sample_ids[r]);
    const float magnitude = noise_magnitude(a.alpha, a.lengths[r], a.width);
    T* x = a.x + r * a.width;
    for (std::int64_t first = 0; first < a.width; first += kCounterFeatures) {
      const PhiloxCounter words =
          philox({static_cast<std::uint32_t>(first / kCounterFeatures), static_cast<std::uint32_t>(a.positions[r]),
                  static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                 a.key);
      const auto count = static_cast<int>(std::min<std::int64_t>(kCounterFeatures, a.width - first));
      for (int f = 0; f < count; ++f)
        x[first + f] = static_cast<T>(static_cast<float>(x[first + f]) + magnitude * symmetric(half_word(words, f)));
    }
  }
}

template <class T>
void noise_on_cpu(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha) {
  const EmbeddingNoise<T> args = embedding_noise_args<T>(x, key, rows, alpha);
  cpu::for_rows(rows.identity.positions.size(0), x.size(1),
                [&](std::int64_t begin, std::int64_t end) { noise_rows(args, begin, end); });
}

}  // namespace

void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha) {
  QFT_ASSERT(rows.lengths.defined() && rows.lengths.numel() == rows.identity.positions.numel() &&
                 rows.identity.positions.numel() <= x.size(0),
             "embedding noise on {} rows needs the identity and length of each noisy row", x.size(0));
  QFT_ASSERT(x.is_contiguous(), "noise takes a contiguous tensor");
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return noise_on_cpu<float>(x, key, rows, alpha);
  if (x.is_cpu() && x.scalar_type() == at::kBFloat16) return noise_on_cpu<at::BFloat16>(x, key, rows, alpha);
  const DeviceKernels* kernels = device_kernels(x);
  if (kernels == nullptr || !kernels->add_embedding_noise(x, key, rows, alpha)) generic::add_embedding_noise(x, key, rows, alpha);
}

}  // namespace qft::ops

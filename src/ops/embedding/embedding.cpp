#include "qft/ops/embedding.h"

#include "qft/core/error.h"

#include <algorithm>

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include <ATen/ops/index_select.h>

namespace qft::ops {
namespace {

/// Columns per thread. Each thread walks all tokens, so that every sum runs in token order.
constexpr std::int64_t kColumnsPerThread = 64;

template <class To, class From, class Add>
void add_rows(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight, Add add) {
  const auto* ids = tokens.const_data_ptr<std::int32_t>();
  const std::int64_t width = gy.size(1), count = gy.size(0);
  at::parallel_for(0, width, kColumnsPerThread, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t)
      add(data<To>(gweight) + ids[t] * width + begin, const_data<From>(gy) + t * width + begin, end - begin);
  });
}

}  // namespace

void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y) {
  if (tokens.is_cpu()) {
    const auto* first = tokens.const_data_ptr<std::int32_t>();
    const auto bad =
        std::find_if(first, first + tokens.numel(), [&](std::int32_t token) { return token < 0 || token >= weight.size(0); });
    require(bad == first + tokens.numel(),
            "token {} is outside the embedding's {} rows: the data was packed with another tokenizer than the model's",
            bad == first + tokens.numel() ? 0 : *bad, weight.size(0));
  }
  at::Tensor out = y;
  at::index_select_out(out, weight, 0, tokens);
}

void embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight) {
  const bool same = gweight.scalar_type() == gy.scalar_type();
  const bool done = (same || gweight.scalar_type() == at::kFloat) && cpu::with_kernel_type(gy, [&]<class T>() {
                      const auto kernels = cpu::add_kernels<T>();
                      if (same)
                        add_rows<T, T>(tokens, gy, gweight, kernels.add);
                      else
                        add_rows<float, T>(tokens, gy, gweight, [&](float* to, const T* from, std::int64_t n) {
                          kernels.add_to_float(to, from, 1.0F, n);
                        });
                    });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(gy);
  if (kernels == nullptr || !kernels->embedding_backward(tokens, gy, gweight))
    gweight.index_add_(0, tokens, gy.to(gweight.scalar_type()));
}

}  // namespace qft::ops

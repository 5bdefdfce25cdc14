#include "qft/ops/delta_gates.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <cmath>
#include <vector>

#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <c10/util/BFloat16.h>

namespace qft::ops {
namespace {

at::Tensor accumulated(const at::Tensor& x) {
  return x.to(generic::accumulate_dtype(x.scalar_type()));
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}
/// log(1 + exp(x)); like torch, returns x above 20.
float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

/// Calls f.template operator()<T>() if a loop over elements supports the tensor. The loop is batch-invariant, because it handles
/// elements one by one.
template <class F>
bool with_elements(const at::Tensor& t, F f) {
  if (!t.is_cpu() || t.scalar_type() == at::kDouble) return false;
  if (t.scalar_type() == at::kFloat) return f.template operator()<float>(), true;
  if (t.scalar_type() == at::kBFloat16) return f.template operator()<c10::BFloat16>(), true;
  return false;
}

/// Per-head values in fp32.
struct HeadValues {
  std::vector<float> rate, dt_bias;  ///< rate: exp(a_log)
  explicit HeadValues(const DeltaGateInputs& in) {
    const at::Tensor a_log = in.a_log.to(at::kFloat).contiguous(), bias = in.dt_bias.to(at::kFloat).contiguous();
    for (std::int64_t h = 0; h < a_log.numel(); ++h) {
      rate.push_back(std::exp(a_log.const_data_ptr<float>()[h]));
      dt_bias.push_back(bias.const_data_ptr<float>()[h]);
    }
  }
};

template <class T>
struct Rows {
  T* data;
  std::int64_t token_stride, head_stride;
  explicit Rows(const at::Tensor& t) : data(t.data_ptr<T>()), token_stride(t.stride(0)), head_stride(t.stride(1)) {}
  T& at(std::int64_t t, std::int64_t h) const { return data[t * token_stride + h * head_stride]; }
};

template <class T>
void forward_loop(const DeltaGateInputs& in, const at::Tensor& g, const at::Tensor& beta) {
  const HeadValues values(in);
  const Rows<T> a(in.a), b(in.b);
  const Rows<float> decay(g), strength(beta);
  const std::int64_t heads = in.a.size(1);
  at::parallel_for(0, in.a.size(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        const auto i = static_cast<std::size_t>(h);
        decay.at(t, h) = -values.rate[i] * softplus(static_cast<float>(a.at(t, h)) + values.dt_bias[i]);
        strength.at(t, h) = sigmoid(static_cast<float>(b.at(t, h)));
      }
  });
}

/// Splits heads over threads; each head's sums run over all tokens in order.
template <class T>
void backward_loop(const at::Tensor& gg, const at::Tensor& gbeta, const DeltaGateInputs& in, const DeltaGateInputs& grads) {
  const HeadValues values(in);
  const Rows<T> a(in.a), b(in.b), ga(grads.a), gb(grads.b);
  const Rows<float> gdecay(gg), gstrength(gbeta);
  const std::int64_t heads = in.a.size(1);
  std::vector<double> rates(static_cast<std::size_t>(heads)), biases(rates);
  at::parallel_for(0, heads, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < in.a.size(0); ++t)
      for (std::int64_t h = begin; h < end; ++h) {
        const auto i = static_cast<std::size_t>(h);
        const float x = static_cast<float>(a.at(t, h)) + values.dt_bias[i], open = sigmoid(static_cast<float>(b.at(t, h)));
        const float ratio = -values.rate[i] * gdecay.at(t, h), gx = ratio * sigmoid(x);
        rates[i] += ratio * softplus(x);
        biases[i] += gx;
        ga.at(t, h) = static_cast<T>(gx);
        gb.at(t, h) = static_cast<T>(gstrength.at(t, h) * open * (1.0F - open));
      }
  });
  for (std::int64_t h = 0; h < heads; ++h) {
    if (grads.a_log.defined()) grads.a_log[h].add_(rates[static_cast<std::size_t>(h)]);
    if (grads.dt_bias.defined()) grads.dt_bias[h].add_(biases[static_cast<std::size_t>(h)]);
  }
}

}  // namespace

void delta_gates_forward(const DeltaGateInputs& in, const at::Tensor& g, const at::Tensor& beta) {
  QFT_ASSERT(in.a.sizes() == in.b.sizes() && in.a_log.numel() == in.a.size(1) && in.dt_bias.numel() == in.a.size(1),
             "{} heads, but {} a_log and {} dt_bias values", in.a.size(1), in.a_log.numel(), in.dt_bias.numel());
  if (with_elements(in.a, [&]<class T>() { forward_loop<T>(in, g, beta); })) return;
  g.copy_(-at::exp(accumulated(in.a_log)) * at::softplus(accumulated(in.a) + accumulated(in.dt_bias)));
  beta.copy_(at::sigmoid(accumulated(in.b)));
}

void delta_gates_backward(const at::Tensor& gg, const at::Tensor& gbeta, const DeltaGateInputs& in,
                          const DeltaGateInputs& grads) {
  if (with_elements(in.a, [&]<class T>() { backward_loop<T>(gg, gbeta, in, grads); })) return;
  const at::Tensor x = accumulated(in.a) + accumulated(in.dt_bias), ratio = -at::exp(accumulated(in.a_log)) * gg;
  const at::Tensor ga = ratio * at::sigmoid(x), open = at::sigmoid(accumulated(in.b));
  if (grads.a_log.defined()) grads.a_log.add_((ratio * at::softplus(x)).sum(0));
  if (grads.dt_bias.defined()) grads.dt_bias.add_(ga.sum(0));
  grads.a.copy_(ga);
  grads.b.copy_(gbeta * open * (1 - open));
}

std::int64_t delta_gates_scratch_bytes(std::int64_t tokens, std::int64_t heads, at::ScalarType dtype, bool backward) {
  const std::int64_t tensors = backward ? 7 : 4;
  return tensors * tokens * heads * static_cast<std::int64_t>(c10::elementSize(generic::accumulate_dtype(dtype)));
}

}  // namespace qft::ops

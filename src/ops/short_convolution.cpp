#include "qft/ops/short_convolution.h"

#include "qft/core/error.h"
#include "qft/ops/cpu/delta_net_kernels.h"
#include "qft/ops/generic.h"

#include <algorithm>

#include "cpu/tensors.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

at::Tensor accumulated(const at::Tensor& x) {
  return x.to(generic::accumulate_dtype(x.scalar_type()));
}

/// f(first row, rows) for each sequence.
template <class F>
void for_sequences(const PackedSequences& sequences, const F& f) {
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s)
    if (const std::int64_t first = sequences.cu_seqlens[s], rows = sequences.cu_seqlens[s + 1] - first; rows > 0) f(first, rows);
}

/// The filter's sums of rows [K - 1 + n, C] in plain calls, for the last n.
at::Tensor convolved(const at::Tensor& padded, const at::Tensor& weight) {
  const std::int64_t taps = weight.size(1), rows = padded.size(0) - (taps - 1);
  at::Tensor z = at::zeros({rows, padded.size(1)}, padded.options());
  for (std::int64_t i = 0; i < taps; ++i) z.add_(padded.narrow(0, i, rows) * weight.select(1, i));
  return z;
}

at::Tensor after_zeros(const at::Tensor& rows, std::int64_t zeros) {
  const at::Tensor x = accumulated(rows);
  return at::cat({at::zeros({zeros, x.size(1)}, x.options()), x});
}

void backward_generic(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gx,
                      const at::Tensor& gweight) {
  const std::int64_t taps = weight.size(1), rows = x.size(0);
  const at::Tensor w = accumulated(weight), padded = after_zeros(x, taps - 1), z = convolved(padded, w), s = at::sigmoid(z);
  const at::Tensor gz = accumulated(gy) * (s + z * s * (1 - s)), gpadded = at::zeros_like(padded);
  for (std::int64_t i = 0; i < taps; ++i) {
    gpadded.narrow(0, i, rows).add_(gz * w.select(1, i));
    if (gweight.defined()) gweight.select(1, i).add_((gz * padded.narrow(0, i, rows)).sum(0));
  }
  gx.copy_(gpadded.narrow(0, taps - 1, rows));
}

/// [taps, channels] in fp32: successive channels are a vector's lanes.
const float* filter(const at::Tensor& weight, Workspace& workspace) {
  const at::Tensor turned = workspace.get("op.convolution_weight", {weight.size(1), weight.size(0)}, at::kFloat);
  turned.copy_(weight.t());
  return turned.const_data_ptr<float>();
}

template <class T>
cpu::ShortConvolution<T> arguments(const at::Tensor& x, const at::Tensor& weight, Workspace& workspace) {
  cpu::ShortConvolution<T> args{};
  args.x = const_data<T>(x), args.x_stride = x.stride(0);
  args.weight = filter(weight, workspace);
  args.channels = x.size(1), args.taps = weight.size(1);
  return args;
}

template <class T>
void forward_rows(cpu::ShortConvolution<T> args, const T* before, std::int64_t first, std::int64_t rows) {
  const auto kernels = cpu::convolution_kernels<T>();
  args.x += first * args.x_stride, args.y += first * args.y_stride;
  args.before = before, args.tokens = rows;
  cpu::for_rows(rows, args.channels, [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
}

/// Channels are spread over threads, so that a filter's gradient is summed over all tokens in one order.
template <class T>
void backward_cpu(const cpu::ShortConvolution<T>& whole, const PackedSequences& sequences) {
  const auto kernels = cpu::convolution_kernels<T>();
  const std::int64_t blocks = (whole.channels + cpu::kConvolutionChannels - 1) / cpu::kConvolutionChannels;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t channel = block * cpu::kConvolutionChannels;
      const std::int64_t last = std::min(channel + cpu::kConvolutionChannels, whole.channels);
      for_sequences(sequences, [&](std::int64_t first, std::int64_t rows) {
        cpu::ShortConvolution<T> args = whole;
        args.x += first * args.x_stride, args.gy += first * args.gy_stride, args.gx += first * args.gx_stride;
        args.tokens = rows;
        kernels.backward(args, channel, last);
      });
    }
  });
}

void check(const at::Tensor& x, const at::Tensor& weight) {
  QFT_ASSERT(weight.dim() == 2 && weight.size(1) >= 1 && weight.size(1) <= kMostTaps, "a filter of {} taps, at most {}",
             weight.size(-1), kMostTaps);
  QFT_ASSERT(x.dim() == 2 && x.stride(1) == 1 && weight.size(0) == x.size(1), "{} filters for {} channels", weight.size(0),
             x.size(-1));
}

void forward(const at::Tensor& x, const at::Tensor& weight, const PackedSequences& sequences, const at::Tensor& y,
             Workspace& workspace) {
  const bool done = cpu::with_kernel_type(x, [&]<class T>() {
    cpu::ShortConvolution<T> args = arguments<T>(x, weight, workspace);
    args.y = data<T>(y), args.y_stride = y.stride(0);
    for_sequences(sequences, [&](std::int64_t first, std::int64_t rows) { forward_rows<T>(args, nullptr, first, rows); });
  });
  if (done) return;
  for_sequences(sequences, [&](std::int64_t first, std::int64_t rows) {
    const at::Tensor z = convolved(after_zeros(x.narrow(0, first, rows), weight.size(1) - 1), accumulated(weight));
    y.narrow(0, first, rows).copy_(z * at::sigmoid(z));
  });
}

void backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const PackedSequences& sequences,
              const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace) {
  const bool done = cpu::with_kernel_type(x, [&]<class T>() {
    cpu::ShortConvolution<T> args = arguments<T>(x, weight, workspace);
    args.gy = const_data<T>(gy), args.gy_stride = gy.stride(0), args.gx = data<T>(gx), args.gx_stride = gx.stride(0);
    at::Tensor sums;
    if (gweight.defined()) sums = workspace.get("op.convolution_gweight", {args.taps, args.channels}, at::kFloat).zero_();
    args.gweight = data<float>(sums);
    backward_cpu(args, sequences);
    if (gweight.defined()) gweight.add_(sums.t());
  });
  if (done) return;
  for_sequences(sequences, [&](std::int64_t first, std::int64_t rows) {
    backward_generic(gy.narrow(0, first, rows), x.narrow(0, first, rows), weight, gx.narrow(0, first, rows), gweight);
  });
}

}  // namespace

void short_convolution_forward(const at::Tensor& x, const at::Tensor& weight, const PackedSequences& sequences,
                               const at::Tensor& y, Workspace& workspace) {
  check(x, weight);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return forward(x, weight, sequences, y, workspace);
  const auto room = [&](const char* name) { return workspace.get(name, {shared.tokens, x.size(1)}, x.scalar_type()); };
  const at::Tensor all_x = room(kSharedIn), all_y = room(kSharedOut);
  expand_rows(x, shared, all_x);
  forward(all_x, weight, sequences, all_y, workspace);
  first_rows(all_y, shared, y);
}

void short_convolution_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight,
                                const PackedSequences& sequences, const at::Tensor& gx, const at::Tensor& gweight,
                                Workspace& workspace) {
  check(x, weight);
  const SharedRows& shared = sequences.shared;
  if (!shared.any()) return backward(gy, x, weight, sequences, gx, gweight, workspace);
  const auto room = [&](const char* name) { return workspace.get(name, {shared.tokens, x.size(1)}, x.scalar_type()); };
  const at::Tensor all_x = room(kSharedIn), all_gx = room(kSharedGradIn);
  expand_rows(x, shared, all_x);
  expand_gradient(gy, shared, all_gx);
  backward(all_gx, all_x, weight, sequences, all_gx, gweight, workspace);
  sum_tokens(all_gx, shared, gx);
}

void short_convolution_decode(const at::Tensor& x, const at::Tensor& weight, std::span<const ConvolvedSequence> sequences,
                              const at::Tensor& y, Workspace& workspace) {
  check(x, weight);
  std::int64_t first = 0;
  for (const auto& [rows, state] : sequences) {
    QFT_ASSERT(state.is_contiguous() && state.scalar_type() == x.scalar_type() && state.size(0) == weight.size(1) - 1,
               "a state of {} rows for {} taps", state.size(0), weight.size(1));
    const at::Tensor fresh = x.narrow(0, first, rows), out = y.narrow(0, first, rows);
    const bool done = cpu::with_kernel_type(x, [&]<class T>() {
      cpu::ShortConvolution<T> args = arguments<T>(fresh, weight, workspace);
      args.y = data<T>(out), args.y_stride = out.stride(0);
      forward_rows<T>(args, const_data<T>(state), 0, rows);
    });
    const at::Tensor all = at::cat({state, fresh});
    if (!done) {
      const at::Tensor z = convolved(accumulated(all), accumulated(weight));
      out.copy_(z * at::sigmoid(z));
    }
    state.copy_(all.narrow(0, rows, state.size(0)));
    first += rows;
  }
}

}  // namespace qft::ops

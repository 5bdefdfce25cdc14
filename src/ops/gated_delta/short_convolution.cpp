#include "qft/ops/short_convolution.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"
#include "qft/ops/cpu/delta_net_kernels.h"
#include "qft/ops/generic.h"

#include <algorithm>
#include <vector>

#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

/// Elements of a tensor [rows, channels] in the plain ATen path.
constexpr std::int64_t kElements = std::int64_t{1} << 22;

std::int64_t channels_at_once(std::int64_t rows, std::int64_t channels) {
  return std::clamp<std::int64_t>(kElements / std::max<std::int64_t>(rows, 1), 1, channels);
}

at::Tensor accumulated(const at::Tensor& x) {
  return x.to(generic::accumulate_dtype(x.scalar_type()));
}

/// Calls f(first row, rows) for each sequence.
template <class F>
void for_sequences(const PackedSequences& sequences, const F& f) {
  for (std::size_t s = 0; s + 1 < sequences.cu_seqlens.size(); ++s)
    if (const std::int64_t first = sequences.cu_seqlens[s], rows = sequences.cu_seqlens[s + 1] - first; rows > 0) f(first, rows);
}

/// Returns the filter's sums over rows [K - 1 + n, C], for the last n rows, in plain ATen calls.
at::Tensor convolved(const at::Tensor& padded, const at::Tensor& weight) {
  const std::int64_t taps = weight.size(1), rows = padded.size(0) - (taps - 1);
  at::Tensor z = at::zeros({rows, padded.size(1)}, padded.options());
  for (std::int64_t i = 0; i < taps; ++i) z.add_(padded.narrow(0, i, rows) * weight.select(1, i));
  return z;
}

/// All sequences end to end with taps - 1 zero rows before each, so that one filter pass serves them all.
struct ZeroSpacedRows {
  at::Tensor places, sums;        ///< int64 [T]: each token's row, and its index among the filter's sums
  std::int64_t rows = 0, before;  ///< `before`: zero rows per sequence; there are this many fewer sums than rows

  ZeroSpacedRows(const PackedSequences& sequences, std::int64_t taps, c10::Device device) : before(taps - 1) {
    std::vector<std::int64_t> all;
    for_sequences(sequences, [&](std::int64_t first, std::int64_t count) {
      rows += before;
      for (std::int64_t i = 0; i < count; ++i) all.push_back(rows + i);
      rows += count;
      QFT_ASSERT(std::ssize(all) == first + count, "{} tokens placed, expected {}", all.size(), first + count);
    });
    places = device::upload(all, device);
    sums = places - before;
  }
};

/// Copies tokens [T, C] to their places among `rows` zero rows.
at::Tensor laid_out(const at::Tensor& tokens, const at::Tensor& places, std::int64_t rows) {
  const at::Tensor x = accumulated(tokens);
  return at::zeros({rows, x.size(1)}, x.options()).index_copy_(0, places, x);
}

/// Calls f(first channel, channels) for chunks of channels in the plain ATen path.
template <class F>
void for_channels(std::int64_t rows, std::int64_t channels, const F& f) {
  const std::int64_t step = channels_at_once(rows, channels);
  for (std::int64_t c = 0; c < channels; c += step) f(c, std::min(step, channels - c));
}

void forward_generic(const at::Tensor& x, const at::Tensor& weight, const ZeroSpacedRows& layout, const at::Tensor& y) {
  const at::Tensor z = at::index_select(convolved(laid_out(x, layout.places, layout.rows), accumulated(weight)), 0, layout.sums);
  y.copy_(at::sigmoid(z).mul_(z));
}

void backward_generic(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const ZeroSpacedRows& layout,
                      const at::Tensor& gx, const at::Tensor& gweight) {
  const std::int64_t taps = weight.size(1), rows = layout.rows - layout.before;
  const at::Tensor w = accumulated(weight), padded = laid_out(x, layout.places, layout.rows), z = convolved(padded, w),
                   s = at::sigmoid(z);
  const at::Tensor gz = laid_out(gy, layout.sums, rows).mul_(s + z * s * (1 - s)), gpadded = at::zeros_like(padded);
  for (std::int64_t i = 0; i < taps; ++i) {
    gpadded.narrow(0, i, rows).addcmul_(gz, w.select(1, i));
    if (gweight.defined()) gweight.select(1, i).add_((gz * padded.narrow(0, i, rows)).sum(0));
  }
  gx.copy_(at::index_select(gpadded, 0, layout.places));
}

/// Returns [taps, channels] in fp32: successive channels fill a vector's lanes.
const float* filter(const at::Tensor& weight, Workspace& workspace) {
  const at::Tensor transposed = workspace.get("op.convolution_weight", {weight.size(1), weight.size(0)}, at::kFloat);
  transposed.copy_(weight.t());
  return transposed.const_data_ptr<float>();
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

/// Splits channels over threads, so that a filter's gradient sums over all tokens in one order.
template <class T>
void backward_cpu(const cpu::ShortConvolution<T>& whole, const PackedSequences& sequences) {
  const auto kernels = cpu::convolution_kernels<T>();
  constexpr std::int64_t kLines = 64;  // channels: two cache lines per row
  const std::int64_t of_thread = (whole.channels / at::get_num_threads() + kLines - 1) / kLines * kLines,
                     width = std::clamp(of_thread, kLines, cpu::kConvolutionChannels);
  const std::int64_t blocks = (whole.channels + width - 1) / width;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t channel = block * width, last = std::min(channel + width, whole.channels);
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
  QFT_ASSERT(weight.dim() == 2 && weight.size(1) >= 1 && weight.size(1) <= kMaxTaps, "a filter has {} taps, the maximum is {}",
             weight.size(-1), kMaxTaps);
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
  if (done || x.size(0) == 0) return;
  const ZeroSpacedRows layout(sequences, weight.size(1), x.device());
  for_channels(layout.rows, x.size(1), [&](std::int64_t c, std::int64_t count) {
    forward_generic(x.narrow(1, c, count), weight.narrow(0, c, count), layout, y.narrow(1, c, count));
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
  if (done || x.size(0) == 0) return;
  const ZeroSpacedRows layout(sequences, weight.size(1), x.device());
  for_channels(layout.rows, x.size(1), [&](std::int64_t c, std::int64_t count) {
    backward_generic(gy.narrow(1, c, count), x.narrow(1, c, count), weight.narrow(0, c, count), layout, gx.narrow(1, c, count),
                     gweight.defined() ? gweight.narrow(0, c, count) : gweight);
  });
}

}  // namespace

std::int64_t short_convolution_scratch_bytes(std::int64_t tokens, std::int64_t sequences, std::int64_t channels,
                                             at::ScalarType dtype, bool backward) {
  const std::int64_t rows = tokens + sequences * (kMaxTaps - 1), item = dtype == at::kDouble ? 8 : 4;
  return (backward ? 8 : 4) * rows * channels_at_once(rows, channels) * item;
}

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
               "the state has {} rows for {} taps", state.size(0), weight.size(1));
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

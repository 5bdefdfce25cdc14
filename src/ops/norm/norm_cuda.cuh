// RMSNorm: a warp or a block per row. Statistics and arithmetic are fp32.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

template <int N, class T>
__global__ void rms_norm_forward_kernel(RmsNormForward<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const T* x = a.x.row(r / a.heads, r % a.heads);
  T* y = a.y.row(r / a.heads, r % a.heads);
  const int width = static_cast<int>(a.width), first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  float squares = 0;
  for (int i = first; i < width; i += step) {
    const auto v = device::load<N>(x + i);
    for (int k = 0; k < N; ++k) squares += v[k] * v[k];
  }
  const float rstd = 1.0F / sqrtf(device::sum_over_row(squares) / static_cast<float>(width) + static_cast<float>(a.eps));
  if (threadIdx.x == 0) a.rstd[r] = rstd;
  for (int i = first; i < width; i += step) {
    auto v = device::load<N>(x + i);
    const auto w = device::load<N>(a.weight + i);
    for (int k = 0; k < N; ++k) {
      const float normed = v[k] * rstd;
      v[k] = (w[k] + a.weight_offset) * (a.rounds_before_weight ? device::rounded<T>(normed) : normed);
    }
    device::store(y + i, v);
  }
}

/// gx = rstd * (gy w - xhat * mean(gy w xhat)) + residual, xhat = x rstd.
template <int N, class T>
__global__ void rms_norm_backward_kernel(RmsNormBackward<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const std::int64_t token = r / a.heads, head = r % a.heads;
  const T *gy = a.gy.row(token, head), *x = a.x.row(token, head);
  const T* residual = a.residual_grad.data != nullptr ? a.residual_grad.row(token, head) : nullptr;
  T* gx = a.gx.row(token, head);
  const int width = static_cast<int>(a.width), first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  const float rstd = a.rstd[r];
  float dot = 0;
  for (int i = first; i < width; i += step) {
    const auto g = device::load<N>(gy + i), w = device::load<N>(a.weight + i), v = device::load<N>(x + i);
    for (int k = 0; k < N; ++k) dot += g[k] * (w[k] + a.weight_offset) * v[k];
  }
  const float share = device::sum_over_row(dot) * rstd * rstd * rstd / static_cast<float>(width);
  for (int i = first; i < width; i += step) {
    auto g = device::load<N>(gy + i);
    const auto w = device::load<N>(a.weight + i), v = device::load<N>(x + i);
    for (int k = 0; k < N; ++k) g[k] = g[k] * (w[k] + a.weight_offset) * rstd - v[k] * share;
    if (residual != nullptr) {
      const auto more = device::load<N>(residual + i);
      for (int k = 0; k < N; ++k) g[k] += more[k];
    }
    device::store(gx + i, g);
  }
}

/// Rows that a block of norm_weight_grad_kernel handles at once.
constexpr int kGradRows = static_cast<int>(kNormGradRows);

/// Sums gy * x rstd down the columns; x rstd is rounded first if the weight multiplied the rounded value. Block (c, p) handles 32
/// N columns, and the groups of kGradRows rows whose index is p modulo gridDim.y. partial [gridDim.y, width].
template <int N, class T>
__global__ void norm_weight_grad_kernel(RmsNormBackward<T> a, std::int64_t rows, float* partial) {
  constexpr int kColumns = device::kWarp * N;
  __shared__ float sums[kGradRows][kColumns];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kColumns, column = first + threadIdx.x * N;
  device::Floats<N> sum{};
  if (column < a.width) {
    for (std::int64_t r = static_cast<std::int64_t>(blockIdx.y) * kGradRows + threadIdx.y; r < rows;
         r += static_cast<std::int64_t>(gridDim.y) * kGradRows) {
      const std::int64_t token = r / a.heads, head = r % a.heads;
      const auto g = device::load<N>(a.gy.row(token, head) + column), v = device::load<N>(a.x.row(token, head) + column);
      const float rstd = a.rstd[r];
      for (int k = 0; k < N; ++k) sum[k] += g[k] * (a.rounds_before_weight ? device::rounded<T>(v[k] * rstd) : v[k] * rstd);
    }
  }
  for (int k = 0; k < N; ++k) sums[threadIdx.y][threadIdx.x * N + k] = sum[k];
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.y * device::kWarp + threadIdx.x); c < kColumns && first + c < a.width;
       c += device::kWarp * kGradRows) {
    float total = 0;
    for (int row = 0; row < kGradRows; ++row) total += sums[row][c];
    partial[blockIdx.y * a.width + first + c] = total;
  }
}

/// to[c] += the sum of partial [count, width] over column c.
template <class G>
__global__ void add_column_sums_kernel(const float* partial, std::int64_t count, G* to, std::int64_t width) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (c >= width) return;
  float total = 0;
  for (std::int64_t p = 0; p < count; ++p) total += partial[p * width + c];
  to[c] = static_cast<G>(static_cast<float>(to[c]) + total);
}

template <int N, class T>
bool in_pieces(const HeadRows<T>& rows) {
  return device::in_pieces<N>(rows.data, {rows.token_stride, rows.head_stride});
}

template <class T, class Launch>
void launch_rms_norm_forward(const RmsNormForward<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const bool whole = device::in_pieces<kPiece>(a.weight, {a.width}) && in_pieces<kPiece>(a.x) && in_pieces<kPiece>(a.y);
  device::with_piece<kPiece>(
      whole, [&](auto n) { launch(device::rows_shape(rows, a.width / n), &rms_norm_forward_kernel<n(), T>, a, rows); });
}

template <class T>
bool backward_in_pieces(const RmsNormBackward<T>& a) {
  constexpr int kPiece = device::kPiece<T>;
  return device::in_pieces<kPiece>(a.weight, {a.width}) && in_pieces<kPiece>(a.gy) && in_pieces<kPiece>(a.x) &&
         in_pieces<kPiece>(a.gx) && in_pieces<kPiece>(a.residual_grad);
}

template <class T, class Launch>
void launch_rms_norm_backward(const RmsNormBackward<T>& a, std::int64_t rows, const Launch& launch) {
  device::with_piece<device::kPiece<T>>(backward_in_pieces(a), [&](auto n) {
    launch(device::rows_shape(rows, a.width / n), &rms_norm_backward_kernel<n(), T>, a, rows);
  });
}

template <class T, class G, class Launch>
void launch_norm_weight_grad(const RmsNormBackward<T>& a, std::int64_t rows, float* partial, G* gweight, const Launch& launch) {
  const std::int64_t parts = norm_weight_grad_parts(rows);
  device::with_piece<device::kPiece<T>>(backward_in_pieces(a), [&](auto n) {
    const std::int64_t columns = device::kWarp * n;
    const dim3 grid(static_cast<unsigned>((a.width + columns - 1) / columns), static_cast<unsigned>(parts));
    launch(device::LaunchShape{grid, dim3(device::kWarp, kGradRows)}, &norm_weight_grad_kernel<n(), T>, a, rows, partial);
  });
  launch(device::flat_shape(a.width), &add_column_sums_kernel<G>, partial, parts, gweight, a.width);
}

}  // namespace qft::ops::cuda

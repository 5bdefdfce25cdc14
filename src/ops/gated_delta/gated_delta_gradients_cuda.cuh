// The gated delta rule, backward: a chunk's gradients, after its states and their gradients are known. One block per chunk and
// value head; the sum over the value heads of a key head follows later.
#pragma once

#include "gated_delta_chunks_cuda.cuh"

namespace qft::ops::cuda {

struct GradientMemory {
  Tiles tiles;
  Square weights, system;    ///< gradients of q k and k k; k k on both sides of the diagonal
  float columns[4][kRows];   ///< sums over 16 rows each
  float parts[3][2][kRows];  ///< sums over half of a row's columns each
  float sums[kRows], read[kRows], values[kRows];
  float whole[kDeltaThreads / device::kWarp];
};
/// Per-row sums for a thread's four rows, over the thread's columns.
struct RowParts {
  float sums[4] = {};     ///< gradient of G
  float written[4] = {};  ///< the part of this gradient through the state after the chunk
  float beta[4] = {};
};

/// Sums `value` over the warp's threads of the same row, or of the same column.
__device__ inline float sum_over_columns(float value) {
  for (int mask = 1; mask < 8; mask *= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  return value;
}
__device__ inline float sum_over_rows(float value) {
  for (int mask = 8; mask < device::kWarp; mask *= 2) value += __shfl_xor_sync(0xFFFFFFFFU, value, mask);
  return value;
}

/// Computes the gradients of the chunk's products q k and k k.
template <class T>
__device__ void product_gradients(const DeltaOperands<T>& a, const DeltaBlock& b, const Decays& d, GradientMemory& s,
                                  RowParts& parts) {
  const DeltaScratch& m = a.scratch;
  const auto values = static_cast<int>(m.value_width);
  const Matrix u = rows_of(b.rows(m.updates, values), values), gu = rows_of(b.rows(m.gupdates, values), values);
  const auto gout = token_rows(a.gout, b.chunk, b.head, a.shape.value_dim);
  const float *weights = b.square(m.weights), *products = b.square(m.products);
  Numbers c{};
  float columns[4] = {};
  multiply<Inner::columns, Inner::columns>(gout, u, values, 0, 0, s.tiles, c);
  for_numbers([&](int i, int j, int row, int column) {
    s.weights.at[row][column] = c.at[i][j] * decay_between(d.sums, row, column);
    const float pair = column <= row ? c.at[i][j] * weights[row * kRows + column] : 0.0F;
    parts.sums[i] += pair;
    columns[j] += pair;
  });
  c = {};
  multiply<Inner::columns, Inner::columns>(gu, u, values, 0, 0, s.tiles, c);
  for_numbers([&](int i, int j, int row, int column) {
    if (column == row) s.system.at[row][row] = 0;
    if (column >= row) return;
    const float of_row = -c.at[i][j] * products[row * kRows + column], pair = of_row * d.beta[row];
    parts.beta[i] += of_row;
    parts.sums[i] += pair;
    columns[j] += pair;
    const float gradient = -c.at[i][j] * decay_between(d.sums, row, column) * d.beta[row];
    s.system.at[row][column] = s.system.at[column][row] = gradient;
  });
  for (int j = 0; j < 4; ++j) {
    const float sum = sum_over_rows(columns[j]);
    if (threadIdx.x % device::kWarp < 8) s.columns[tile_row() / 16][tile_column() + j] = sum;
  }
  __syncthreads();
}

/// Scales row r of c by scale[r], then calls f(i, the row's dot product with `rows`).
template <class F>
__device__ void scale_rows(Numbers& c, const float* scale, const Matrix& rows, int first, const F& f) {
  for (int i = 0; i < 4; ++i) {
    const int row = tile_row() + i;
    const auto x = rows.four(row, first + tile_column());
    float dot = 0;
    for (int j = 0; j < 4; ++j) {
      c.at[i][j] *= scale[row];
      dot += c.at[i][j] * x[j];
    }
    f(i, dot);
  }
}

/// Handles 64 columns of k and q: writes their gradients to memory, and adds their contributions to G and beta.
template <class T>
__device__ void key_gradients(const DeltaOperands<T>& a, const DeltaBlock& b, const Decays& d, GradientMemory& s, int first,
                              RowParts& parts) {
  const DeltaScratch& m = a.scratch;
  const auto keys = static_cast<int>(m.key_width), values = static_cast<int>(m.value_width);
  const Matrix u = rows_of(b.rows(m.updates, values), values), gu = rows_of(b.rows(m.gupdates, values), values);
  const Matrix state{b.state(m.states, m), values, keys, values}, gstate{b.state(m.gstates, m), values, keys, values};
  const Matrix k = rows_of(b.key_rows(m.keys, keys), keys), q = rows_of(b.key_rows(m.queries, keys), keys);
  const auto gout = token_rows(a.gout, b.chunk, b.head, a.shape.value_dim);
  constexpr auto kAcross = Inner::columns;
  Numbers gk{}, c{};
  multiply<kAcross, kAcross>(gu, state, values, 0, first, s.tiles, gk);
  scale_rows(gk, d.start, k, first, [&](int i, float dot) {
    const float beta = d.beta[tile_row() + i];
    parts.beta[i] -= dot;
    parts.sums[i] -= beta * dot;
    for (int j = 0; j < 4; ++j) gk.at[i][j] *= -beta;
  });
  multiply<kAcross, kAcross>(u, gstate, values, 0, first, s.tiles, c);
  scale_rows(c, d.end, k, first, [&](int i, float dot) {
    parts.written[i] += dot;
    for (int j = 0; j < 4; ++j) gk.at[i][j] += c.at[i][j];
  });
  multiply<Inner::rows, Inner::rows>(rows_of(s.weights), q, kRows, 0, first, s.tiles, gk);
  multiply<kAcross, Inner::rows>(rows_of(s.system), k, kRows, 0, first, s.tiles, gk);
  write_tile(gk, b.rows(m.of_gradient, keys), keys, 0, kRows, first);
  c = {};
  multiply<kAcross, kAcross>(gout, state, values, 0, first, s.tiles, c);
  scale_rows(c, d.start, q, first, [&](int i, float dot) { parts.sums[i] += dot; });
  multiply<kAcross, Inner::rows>(rows_of(s.weights), k, kRows, 0, first, s.tiles, c);
  write_tile(c, b.rows(m.of_state, keys), keys, 0, kRows, first);
}

/// Writes v's gradient, and computes v's contribution to beta's gradient; four threads per row.
template <class T>
__device__ void value_gradients(const DeltaOperands<T>& a, const DeltaBlock& b, const Decays& d, GradientMemory& s) {
  const int row = static_cast<int>(threadIdx.x) / 4, part = static_cast<int>(threadIdx.x) % 4;
  const float* gu = b.rows(a.scratch.gupdates, a.scratch.value_width) + row * a.scratch.value_width;
  float sum = 0;
  if (row < b.chunk.rows) {
    const T* v = a.v.row(b.chunk.token + row, b.head);
    T* gv = a.gv.row(b.chunk.token + row, b.head);
    for (int c = part; c < a.shape.value_dim; c += 4) {
      sum += gu[c] * static_cast<float>(v[c]);
      gv[c] = static_cast<T>(gu[c] * d.beta[row]);
    }
  }
  for (int mask = 1; mask < 4; mask *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, mask);
  if (part == 0) s.values[row] = sum;
}

/// Stores partial sums over (state before the chunk) * (gradient of the state after the chunk) in s.whole.
__device__ inline void state_product(const float* state, const float* gstate, std::int64_t size, GradientMemory& s) {
  float sum = 0;
  for (std::int64_t i = threadIdx.x * 4; i < size; i += kDeltaThreads * 4) {
    const auto x = device::load<4>(state + i), y = device::load<4>(gstate + i);
    for (int j = 0; j < 4; ++j) sum += x[j] * y[j];
  }
  sum = sum_over_rows(sum_over_columns(sum));
  if (threadIdx.x % device::kWarp == 0) s.whole[threadIdx.x / device::kWarp] = sum;
}

/// Writes the gradients of g and beta from all threads' partial sums.
template <class T>
__device__ void write_gate_gradients(const DeltaOperands<T>& a, const DeltaBlock& b, const Decays& d, GradientMemory& s,
                                     const RowParts& parts) {
  const auto put = [&](int what, const float (&of_rows)[4]) {
    for (int i = 0; i < 4; ++i) {
      const float sum = sum_over_columns(of_rows[i]);
      if (threadIdx.x % 8 == 0) s.parts[what][tile_column() / 32][tile_row() + i] = sum;
    }
  };
  put(0, parts.sums), put(1, parts.written), put(2, parts.beta);
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x);
  const auto of = [&](int what) { return s.parts[what][0][row] + s.parts[what][1][row]; };
  if (row < kRows) {
    s.read[row] = of(1);
    s.sums[row] = of(0) - (s.columns[0][row] + s.columns[1][row] + s.columns[2][row] + s.columns[3][row]) - s.read[row];
  }
  __syncthreads();
  if (row >= b.chunk.rows) return;
  double last = 0, sum = 0;
  for (const float part : s.whole) last += static_cast<double>(part);
  last *= static_cast<double>(d.start[kRows - 1]);
  for (int j = 0; j < kRows; ++j) last += static_cast<double>(s.read[j]);
  for (int j = kRows - 1; j >= row; --j) sum += static_cast<double>(s.sums[j]);
  const std::int64_t at = (b.chunk.token + row) * a.shape.value_heads + b.head;
  a.gg[at] = static_cast<float>(sum + last);
  a.gbeta[at] = s.values[row] + of(2);
}

template <class T>
__global__ void __launch_bounds__(kDeltaThreads, 2) delta_gradients_kernel(DeltaOperands<T> a) {
  __shared__ GradientMemory s;
  __shared__ Decays d;
  const DeltaBlock b = DeltaBlock::of(a);
  const DeltaScratch& m = a.scratch;
  d.load(m, b);
  RowParts parts;
  product_gradients(a, b, d, s, parts);
  for (int first = 0; first < m.key_width; first += kRows) key_gradients(a, b, d, s, first, parts);
  value_gradients(a, b, d, s);
  state_product(b.state(m.states, m), b.state(m.gstates, m), m.key_width * m.value_width, s);
  write_gate_gradients(a, b, d, s, parts);
}

/// Backpropagates through the norms of q and k, with gradients summed over a key head's value heads; one warp per row.
template <class T>
__global__ void delta_norms_backward_kernel(DeltaOperands<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const std::int64_t head = r / kRows % a.shape.key_heads, c = r / kRows / a.shape.key_heads, row = r % kRows,
                     width = a.scratch.key_width, group = a.shape.value_heads / a.shape.key_heads;
  const DeltaChunk chunk = a.chunks[c];
  if (row >= chunk.rows) return;
  const int dim = static_cast<int>(a.shape.key_dim);
  const std::int64_t first = (c * a.shape.value_heads + head * group) * kRows + row;
  const auto write = [&](const HeadRows<const T>& of, const float* gradients, float scale, const HeadRows<T>& to) {
    const T* x = of.row(chunk.token + row, head);
    T* gx = to.row(chunk.token + row, head);
    const auto gradient = [&](int i) {
      float sum = 0;
      for (std::int64_t n = 0; n < group; ++n) sum += gradients[(first + n * kRows) * width + i];
      return sum * scale;
    };
    float squares = 0, dot = 0;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += device::kWarp) {
      const auto value = static_cast<float>(x[i]);
      squares += value * value;
      dot += value * gradient(i);
    }
    const float factor = 1.0F / sqrtf(device::sum_over_row(squares) + kDeltaNormEps);
    const float share = device::sum_over_row(dot) * factor * factor;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += device::kWarp)
      gx[i] = static_cast<T>(factor * (gradient(i) - static_cast<float>(x[i]) * share));
  };
  write(a.q, a.scratch.of_state, 1.0F / sqrtf(static_cast<float>(dim)), a.gq);
  write(a.k, a.scratch.of_gradient, 1.0F, a.gk);
}

}  // namespace qft::ops::cuda

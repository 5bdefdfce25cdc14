// The gated delta rule with one block per chunk and value head: products within a chunk, before the states are known, and the
// rows' results, afterwards.
#pragma once

#include "gated_delta_tile_cuda.cuh"

namespace qft::ops::cuda {

/// Normalises q and k: one warp per row of a chunk and key head.
template <class T>
__global__ void delta_norms_kernel(DeltaOperands<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const std::int64_t place = r / kRows, head = place % a.shape.key_heads, row = r % kRows, width = a.scratch.key_width;
  const DeltaChunk chunk = a.chunks[place / a.shape.key_heads];
  const int dim = row < chunk.rows ? static_cast<int>(a.shape.key_dim) : 0;
  const auto write = [&](const HeadRows<const T>& from, float scale, float* to) {
    const T* x = from.row(chunk.token + (dim > 0 ? row : 0), head);
    float squares = 0;
    for (int i = static_cast<int>(threadIdx.x); i < dim; i += device::kWarp) {
      const auto value = static_cast<float>(x[i]);
      squares += value * value;
    }
    const float factor = scale / sqrtf(device::sum_over_row(squares) + kDeltaNormEps);
    for (int i = static_cast<int>(threadIdx.x); i < width; i += device::kWarp)
      to[r * width + i] = i < dim ? static_cast<float>(x[i]) * factor : 0.0F;
  };
  write(a.q, 1.0F / sqrtf(static_cast<float>(a.shape.key_dim)), a.scratch.queries);
  write(a.k, 1.0F, a.scratch.keys);
}

/// A block's chunk and heads, and the offsets of their memory.
struct DeltaBlock {
  DeltaChunk chunk;
  int head, key_head;
  std::int64_t place, key_place;  ///< indices of the memory per chunk and value head, and per chunk and key head
  template <class T>
  __device__ static DeltaBlock of(const DeltaOperands<T>& a) {
    const auto heads = static_cast<int>(a.shape.value_heads), key_heads = static_cast<int>(a.shape.key_heads);
    const int c = static_cast<int>(blockIdx.x) / heads, head = static_cast<int>(blockIdx.x) % heads;
    const int key_head = head / (heads / key_heads);
    return {a.chunks[c], head, key_head, blockIdx.x, static_cast<std::int64_t>(c) * key_heads + key_head};
  }
  __device__ float* rows(float* of, std::int64_t width) const { return of + place * kRows * width; }
  __device__ const float* key_rows(const float* of, std::int64_t width) const { return of + key_place * kRows * width; }
  __device__ float* square(float* of) const { return of + place * kRows * kRows; }
  __device__ float* state(float* of, const DeltaScratch& m) const { return of + place * m.key_width * m.value_width; }
};

/// Per row of a chunk: the sum of g, the decays derived from this sum, and beta.
struct Decays {
  double sums[kRows];
  float start[kRows], end[kRows], beta[kRows];

  /// Computes the decays from the tokens' g and beta, and stores them. All threads must call this.
  template <class T>
  __device__ void compute(const DeltaOperands<T>& a, const DeltaBlock& b) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < kRows) {
      const std::int64_t at = (b.chunk.token + i) * a.shape.value_heads + b.head;
      end[i] = i < b.chunk.rows ? a.g[at] : 0.0F;
      beta[i] = i < b.chunk.rows ? a.beta[at] : 0.0F;
    }
    __syncthreads();
    if (i < kRows) {
      double sum = 0;
      for (int j = 0; j <= i; ++j) sum += static_cast<double>(end[j]);
      sums[i] = sum;
    }
    __syncthreads();
    if (i < kRows) {
      start[i] = expf(static_cast<float>(sums[i]));
      end[i] = expf(static_cast<float>(sums[kRows - 1] - sums[i]));
      float* kept = a.scratch.decays + b.place * 3 * kRows;
      kept[i] = start[i], kept[kRows + i] = end[i], kept[2 * kRows + i] = beta[i];
      a.scratch.sums[b.place * kRows + i] = sums[i];
    }
    __syncthreads();
  }
  /// Loads the results of compute().
  __device__ void load(const DeltaScratch& m, const DeltaBlock& b) {
    const int i = static_cast<int>(threadIdx.x);
    const float* kept = m.decays + b.place * 3 * kRows;
    if (i < kRows) {
      start[i] = kept[i], end[i] = kept[kRows + i], beta[i] = kept[2 * kRows + i];
      sums[i] = m.sums[b.place * kRows + i];
    }
    __syncthreads();
  }
};

/// Extends the inverse of I + a from diagonal blocks of kSize to blocks of 2 kSize: the block below a pair is -(lower inverse) a
/// (upper inverse). Overwrites a there.
template <int kSize>
__device__ void join_inverses(Square& a, Square& inverse) {
  constexpr int kEach = kRows * kSize / 2 / kDeltaThreads;
  const int t = static_cast<int>(threadIdx.x);
  float sums[kEach];
  const auto each = [&](const auto& f) {
    for (int n = 0; n < kEach; ++n) {
      const int e = t + n * kDeltaThreads, pair = e / (kSize * kSize);
      f(n, pair * 2 * kSize, e % (kSize * kSize) / kSize, e % kSize);
    }
  };
  each([&](int n, int upper, int i, int j) {
    sums[n] = 0;
    for (int k = 0; k < kSize; ++k) sums[n] += a.at[upper + kSize + i][upper + k] * inverse.at[upper + k][upper + j];
  });
  __syncthreads();
  each([&](int n, int upper, int i, int j) { a.at[upper + kSize + i][upper + j] = sums[n]; });
  __syncthreads();
  each([&](int, int upper, int i, int j) {
    const int lower = upper + kSize;
    float sum = 0;
    for (int k = 0; k < kSize; ++k) sum += inverse.at[lower + i][lower + k] * a.at[lower + k][upper + j];
    inverse.at[lower + i][upper + j] = -sum;
  });
  __syncthreads();
}

/// Computes the inverse of I + a for a strictly lower triangular a; overwrites a.
__device__ inline void invert(Square& a, Square& inverse) {
  constexpr int kBlock = 16;
  const int t = static_cast<int>(threadIdx.x);
  for (int e = t; e < kRows * kRows; e += kDeltaThreads)
    if (e / kRows / kBlock != e % kRows / kBlock) inverse.at[e / kRows][e % kRows] = 0;
  if (t < kRows) {  // one column of a diagonal block per thread
    const int first = t / kBlock * kBlock;
    float column[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      float sum = first + i == t ? -1.0F : 0.0F;
      for (int k = 0; k < i; ++k) sum += a.at[first + i][first + k] * column[k];
      column[i] = -sum;
      inverse.at[first + i][t] = -sum;
    }
  }
  __syncthreads();
  join_inverses<kBlock>(a, inverse);
  join_inverses<2 * kBlock>(a, inverse);
}

/// Computes the products of a chunk's rows with decays: k k times beta into `system` (strictly lower), q k into memory.
template <bool kBackward, class T>
__device__ void row_products(const DeltaOperands<T>& a, const DeltaBlock& b, const Decays& d, Square& system, Tiles& tiles) {
  const DeltaScratch& m = a.scratch;
  const auto width = static_cast<int>(m.key_width);
  const Matrix k = rows_of(b.key_rows(m.keys, width), width), q = rows_of(b.key_rows(m.queries, width), width);
  Numbers products{};
  multiply<Inner::columns, Inner::columns>(k, k, width, 0, 0, tiles, products);
  for_numbers([&](int i, int j, int row, int column) {
    float& product = products.at[i][j];
    product = column < row ? product * decay_between(d.sums, row, column) : 0.0F;
    system.at[row][column] = product * d.beta[row];
  });
  if constexpr (kBackward) write_tile(products, b.square(m.products), kRows, 0, kRows, 0);
  products = {};
  multiply<Inner::columns, Inner::columns>(q, k, width, 0, 0, tiles, products);
  for_numbers([&](int i, int j, int row, int column) { products.at[i][j] *= decay_between(d.sums, row, column); });
  write_tile(products, b.square(m.weights), kRows, 0, kRows, 0);
  __syncthreads();
}

/// to [rows, width] = a b, one square at a time.
template <Inner kInnerA, class A, class B>
__device__ void write_product(const A& a, const B& b, int rows, std::int64_t width, Tiles& tiles, float* to) {
  for (int row = 0; row < rows; row += kRows)
    for (int column = 0; column < width; column += kRows) {
      Numbers c{};
      multiply<kInnerA, Inner::rows>(a, b, kRows, row, column, tiles, c);
      write_tile(c, to, width, row, rows, column);
    }
}

/// Computes W and U for the forward recurrence, Z and R for the backward recurrence, and q's contribution to the state gradients.
template <bool kBackward, class T>
__global__ void __launch_bounds__(kDeltaThreads, 3) delta_system_kernel(DeltaOperands<T> a) {
  __shared__ Tiles tiles;
  __shared__ Square system, inverse;
  __shared__ Decays d;
  __shared__ float key_scale[kRows];
  const DeltaBlock b = DeltaBlock::of(a);
  const DeltaScratch& m = a.scratch;
  d.compute(a, b);
  if (threadIdx.x < kRows) key_scale[threadIdx.x] = d.beta[threadIdx.x] * d.start[threadIdx.x];
  row_products<kBackward>(a, b, d, system, tiles);
  invert(system, inverse);
  const Matrix k = rows_of(b.key_rows(m.keys, m.key_width), m.key_width), solve = rows_of(inverse);
  const auto v = token_rows(a.v, b.chunk, b.head, a.shape.value_dim);
  write_product<Inner::columns>(solve, scaled(k, key_scale), kRows, m.key_width, tiles, b.rows(m.of_state, m.key_width));
  write_product<Inner::columns>(solve, scaled(v, d.beta), kRows, m.value_width, tiles, b.rows(m.updates, m.value_width));
  if constexpr (kBackward) {
    const auto gout = token_rows(a.gout, b.chunk, b.head, a.shape.value_dim);
    write_product<Inner::rows>(solve, scaled(k, d.end), kRows, m.key_width, tiles, b.rows(m.of_gradient, m.key_width));
    Numbers c{};
    multiply<Inner::columns, Inner::rows>(rows_of(b.square(m.weights), kRows), solve, kRows, 0, 0, tiles, c);
    write_tile(c, &system.at[0][0], kPitch, 0, kRows, 0);
    __syncthreads();
    write_product<Inner::rows>(rows_of(system), gout, kRows, m.value_width, tiles, b.rows(m.gupdates, m.value_width));
    const Matrix q = rows_of(b.key_rows(m.queries, m.key_width), m.key_width);
    write_product<Inner::rows>(scaled(q, d.start), gout, static_cast<int>(m.key_width), m.value_width, tiles,
                               b.state(m.gstates, m));
  }
}

/// o = exp(G) q S + (D q k) u for the 64 columns of blockIdx.y.
template <class T>
__global__ void __launch_bounds__(kDeltaThreads, 4) delta_out_kernel(DeltaOperands<T> a) {
  __shared__ Tiles tiles;
  const DeltaBlock b = DeltaBlock::of(a);
  const DeltaScratch& m = a.scratch;
  const auto keys = static_cast<int>(m.key_width), values = static_cast<int>(m.value_width);
  const int first = static_cast<int>(blockIdx.y) * kRows;
  const Matrix state{b.state(m.states, m), values, keys, values};
  Numbers c{};
  multiply<Inner::columns, Inner::rows>(rows_of(b.key_rows(m.queries, keys), keys), state, keys, 0, first, tiles, c);
  const float* start = m.decays + b.place * 3 * kRows;
  for_numbers([&](int i, int j, int row, int) { c.at[i][j] *= start[row]; });
  const Matrix weights = rows_of(b.square(m.weights), kRows), u = rows_of(b.rows(m.updates, values), values);
  multiply<Inner::columns, Inner::rows>(weights, u, kRows, 0, first, tiles, c);
  for_numbers([&](int i, int j, int row, int column) {
    if (row < b.chunk.rows && first + column < a.shape.value_dim)
      a.out.row(b.chunk.token + row, b.head)[first + column] = static_cast<T>(c.at[i][j]);
  });
}

}  // namespace qft::ops::cuda

// The gated delta rule's recurrence over chunks: one block per chain of chunks, value head and 16 columns of the state. The block
// holds these columns in shared memory.
#pragma once

#include "gated_delta_tile_cuda.cuh"

namespace qft::ops::cuda {

constexpr int kSlice = 16;      ///< columns of a state
constexpr int kWalkDepth = 32;  ///< inner index steps at a time
constexpr int kWalkParts = 4;   ///< parts of these steps, each with a quarter of the threads: a thread accumulates 4 x 4 numbers

struct alignas(device::kPieceBytes) WalkMemory {
  union {
    float tiles[2][kWalkDepth][kPitch];
    float sums[kWalkParts][kRows][kSlice];
  };
  float state[kMaxDeltaKeyDim][kSlice];
  float rows[kRows][kSlice];
};

/// This thread's row of 64, and the first of its four columns.
__device__ inline int walk_row() {
  return static_cast<int>(threadIdx.x) / 4;
}
__device__ inline int walk_column() {
  return static_cast<int>(threadIdx.x) % 4 * 4;
}

/// Products of a matrix in memory with a matrix [inner, kSlice] in shared memory.
class SliceProduct {
 public:
  __device__ explicit SliceProduct(WalkMemory& memory) : memory_(memory) {}

  /// Computes rows of a, starting at a_first, times b; returns this thread's four numbers.
  template <Inner kInner>
  __device__ device::Floats<4> multiply(const Matrix& a, const float (*b)[kSlice], int inner, int a_first) {
    device::Floats<4> next[2];
    Numbers c{};
    fetch<kInner>(a, 0, a_first, next);
    // alternates between two tiles: one barrier per tile
    for (int k = 0, turn = 0; k < inner; k += kWalkDepth, turn = 1 - turn) {
      auto& tile = memory_.tiles[turn];
      put<kInner>(next, tile);
      __syncthreads();
      if (k + kWalkDepth < inner) fetch<kInner>(a, k + kWalkDepth, a_first, next);
      for (int d = 0; d < kWalkDepth / kWalkParts; ++d) {
        const int at = part() * (kWalkDepth / kWalkParts) + d;
        const auto x = device::load<4>(&tile[at][first_row()]), y = device::load<4>(&b[k + at][walk_column()]);
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) c.at[i][j] += x[i] * y[j];
      }
    }
    return sum_of_parts(c);
  }

 private:
  static constexpr int kPartThreads = kDeltaThreads / kWalkParts;
  __device__ static int part() { return static_cast<int>(threadIdx.x) / kPartThreads; }
  __device__ static int first_row() { return static_cast<int>(threadIdx.x) % kPartThreads / 4 * 4; }
  /// Returns where a row of sums is stored; odd groups of four swap neighbouring rows to avoid bank conflicts.
  __device__ static int place(int row) { return row ^ (row / 4 % 2); }

  __device__ device::Floats<4> sum_of_parts(const Numbers& c) {
    __syncthreads();  // the sums share memory with the tiles; all reads of the tiles are done
    for (int i = 0; i < 4; ++i)
      device::store(&memory_.sums[part()][place(first_row() + i)][walk_column()],
                    device::Floats<4>{{c.at[i][0], c.at[i][1], c.at[i][2], c.at[i][3]}});
    __syncthreads();
    device::Floats<4> total{};
    for (const auto& sums : memory_.sums) {
      const auto x = device::load<4>(&sums[place(walk_row())][walk_column()]);
      for (int j = 0; j < 4; ++j) total[j] += x[j];
    }
    __syncthreads();
    return total;
  }

  template <Inner kInner>
  __device__ static void fetch(const Matrix& a, int inner, int outer, device::Floats<4> (&to)[2]) {
    const int t = static_cast<int>(threadIdx.x);
    for (int n = 0; n < 2; ++n)
      to[n] = kInner == Inner::rows ? a.four(inner + t / 16 + 16 * n, outer + t % 16 * 4)
                                    : a.four(outer + t / 4, inner + t % 4 * 4 + 16 * n);
  }
  template <Inner kInner>
  __device__ static void put(const device::Floats<4> (&x)[2], float (&tile)[kWalkDepth][kPitch]) {
    const int t = static_cast<int>(threadIdx.x);
    for (int n = 0; n < 2; ++n) {
      if constexpr (kInner == Inner::rows)
        device::store(&tile[t / 16 + 16 * n][t % 16 * 4], x[n]);
      else
        for (int i = 0; i < 4; ++i) tile[t % 4 * 4 + 16 * n + i][t / 4] = x[n][i];
    }
  }

  WalkMemory& memory_;
};

/// A block's loop over chunks. Forward: S = exp(G_last) S + k^T (exp(G_last - G) u) with u = U - W S. Backward: gS = exp(G_last)
/// gS + (q's contribution) - k^T (beta exp(G) gu) with gu = R + Z gS. Each thread reads and writes only its own numbers of states
/// and rows.
template <bool kBackward>
class Walk {
 public:
  __device__ Walk(const DeltaStates& a, WalkMemory& memory)
      : a_(a),
        m_(a.scratch),
        memory_(memory),
        heads_(static_cast<int>(a.shape.value_heads)),
        head_(static_cast<int>(blockIdx.x) % heads_),
        column_(static_cast<int>(blockIdx.y) * kSlice + walk_column()),
        keys_(static_cast<int>(a.scratch.key_width)) {}

  __device__ void run() {
    const DeltaChain chain = a_.chains[static_cast<int>(blockIdx.x) / heads_];
    begin(chain);
    for (int n = 0; n < chain.count; ++n) advance(kBackward ? chain.first + chain.count - 1 - n : chain.first + n);
    if ((kBackward ? chain.before : chain.after) != 0) write_state(carry(1 - a_.parity));
  }

 private:
  /// True if the thread's four columns are inside the matrix. The width is a multiple of 4, so the columns are all inside or all
  /// outside.
  __device__ bool has_columns() const { return column_ < m_.value_width; }
  /// Returns this thread's columns of a state, or of rows.
  __device__ float* columns_of(float* of, std::int64_t place, std::int64_t rows) const {
    return of + place * rows * m_.value_width + column_;
  }
  __device__ float* carry(std::int64_t which) const { return columns_of(m_.carry, which * heads_ + head_, keys_); }
  __device__ float* own(int row) const { return &memory_.state[row][walk_column()]; }
  __device__ void write_state(float* to) const {
    if (!has_columns()) return;
    for (int row = walk_row(); row < keys_; row += kRows) device::store(to + row * m_.value_width, device::load<4>(own(row)));
  }
  /// Calls f(this thread's number in shared memory, the number's index in the kept states) for the columns and rows of kept
  /// states.
  template <class F>
  __device__ void for_kept(int kept, const F& f) const {
    const std::int64_t keys = a_.shape.key_dim, values = a_.shape.value_dim,
                       first = (static_cast<std::int64_t>(kept) * heads_ + head_) * keys * values;
    for (int row = walk_row(); row < keys; row += kRows)
      for (int j = 0; j < 4; ++j)
        if (column_ + j < values) f(own(row)[j], first + row * values + column_ + j);
  }

  __device__ void begin(const DeltaChain& chain) {
    const int kept = a_.chunks[chain.first].kept;
    const bool goes_on = (kBackward ? chain.after : chain.before) != 0;
    for (int row = walk_row(); row < kMaxDeltaKeyDim; row += kRows) {
      const bool carried = goes_on && row < keys_ && has_columns();
      device::store(own(row), carried ? device::load<4>(carry(a_.parity) + row * m_.value_width) : device::Floats<4>{});
    }
    if (!kBackward && a_.kept != nullptr && kept >= 0)
      for_kept(kept, [&](float& number, std::int64_t at) { number = a_.kept[at]; });
    __syncthreads();
  }

  __device__ void advance(int c) {
    const std::int64_t place = static_cast<std::int64_t>(c) * heads_ + head_;
    const float* decays = m_.decays + place * 3 * kRows;
    if (!kBackward) {
      if (const int kept = a_.chunks[c].kept; kept >= 0 && a_.keep != nullptr)
        for_kept(kept, [&](float number, std::int64_t at) { a_.keep[at] = number; });
      write_state(columns_of(m_.states, place, keys_));
    }
    change_rows(place, decays);
    const int group = heads_ / static_cast<int>(a_.shape.key_heads);
    const std::int64_t key_place = c * a_.shape.key_heads + head_ / group;
    const Matrix k = rows_of(m_.keys + key_place * kRows * keys_, keys_);
    for (int first = 0; first < keys_; first += kRows) change_state(k, first, decays[kRows - 1], place);
  }

  /// Writes u or gu to memory, and scales them for the state update into shared memory.
  __device__ void change_rows(std::int64_t place, const float* decays) {
    const int row = walk_row();
    float* rows = columns_of(kBackward ? m_.gupdates : m_.updates, place, kRows) + row * m_.value_width;
    const Matrix of_state = rows_of((kBackward ? m_.of_gradient : m_.of_state) + place * kRows * keys_, keys_);
    auto x = has_columns() ? device::load<4>(rows) : device::Floats<4>{};
    const float start = decays[row], end = decays[kRows + row], beta = decays[2 * kRows + row];
    const auto product = SliceProduct(memory_).template multiply<Inner::columns>(of_state, memory_.state, keys_, 0);
    for (int j = 0; j < 4; ++j) x[j] += kBackward ? product[j] : -product[j];
    if (has_columns()) device::store(rows, x);
    for (int j = 0; j < 4; ++j) x[j] *= kBackward ? -beta * start : end;
    device::store(&memory_.rows[row][walk_column()], x);
  }

  __device__ void change_state(const Matrix& k, int first, float whole, std::int64_t place) {
    const int row = first + walk_row();
    const bool in_memory = kBackward && has_columns() && row < keys_;
    float* gstate = in_memory ? columns_of(m_.gstates, place, keys_) + row * m_.value_width : nullptr;
    const auto base = in_memory ? device::load<4>(gstate) : device::Floats<4>{};
    const auto product = SliceProduct(memory_).template multiply<Inner::rows>(k, memory_.rows, kRows, first);
    auto state = device::load<4>(own(row));
    if (in_memory) device::store(gstate, state);
    for (int j = 0; j < 4; ++j) state[j] = whole * state[j] + (base[j] + product[j]);
    device::store(own(row), state);
  }

  const DeltaStates& a_;
  const DeltaScratch& m_;
  WalkMemory& memory_;
  int heads_, head_, column_, keys_;
};

template <bool kBackward>
__global__ void __launch_bounds__(kDeltaThreads) delta_walk_kernel(DeltaStates a) {
  __shared__ WalkMemory memory;
  Walk<kBackward>(a, memory).run();
}

}  // namespace qft::ops::cuda

// Copies one head's rows into the layouts for tiled attention's matrix products, and back.
#define HWY_TARGET_INCLUDE "ops/common/packing_cpu.cpp"
#include "packing_cpu.h"

#include <algorithm>
#include <type_traits>

#include "vector-inl.h"
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Size of the small squares in which matrices are transposed.
constexpr std::int64_t kSquare = 16;

/// to[n] = from[n], converted to E if the types differ.
template <class T, class E>
void copy_elements(const T* from, std::int64_t n, E* to) {
  if constexpr (std::is_same_v<T, E>) {
    std::copy_n(from, n, to);
  } else {
    for_vectors(static_cast<std::size_t>(n),
                [&](std::size_t i, auto extent) HWY_ATTR { store(load(from + i, extent), to + i, extent); });
  }
}

template <class T, class E>
void copy_rows(const HeadSlice<T>& rows, std::int64_t padded_rows, std::int64_t padded_dim, E* out) {
  for (std::int64_t r = 0; r < padded_rows; ++r) {
    E* to = out + r * padded_dim;
    const std::int64_t used = r < rows.count ? rows.head_dim : 0;
    if (used > 0) copy_elements(rows.data + r * rows.row_stride, used, to);
    std::fill(to + used, to + padded_dim, E{0});
  }
}

#if HWY_TARGET == HWY_SCALAR

/// The scalar target has no vectors: transposes nothing.
std::int64_t transpose_words(const std::uint32_t*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::uint32_t*) {
  return 0;
}
std::int64_t transpose_halves(const std::uint16_t*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::uint16_t*) {
  return 0;
}

#else

#if HWY_HAVE_SCALABLE
using Squares = hn::FixedTag<std::uint32_t, 4>;
#else
using Squares = Words;
#endif

/// Loads four words from each of several rows, one row per 128-bit block: block b comes from row 4 b.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const std::uint32_t* in, std::int64_t stride) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    constexpr auto kRows = static_cast<std::int64_t>(hn::MaxLanes(D()) / 2);
    return hn::Combine(d, load_blocks(half, in + kRows * stride, stride), load_blocks(half, in, stride));
  } else {
    return hn::LoadU(d, in);
  }
}

/// out[4][width] = four words from each of `lanes` rows, transposed. Interleaving four vectors transposes the 4 x 4 square in
/// every 128-bit block.
template <class D>
HWY_INLINE void transpose_squares(D d, const std::uint32_t* in, std::int64_t stride, std::int64_t width, std::uint32_t* out) {
  const hn::Repartition<std::uint64_t, D> pairs;
  const auto a = load_blocks(d, in, stride), b = load_blocks(d, in + stride, stride), c = load_blocks(d, in + 2 * stride, stride),
             e = load_blocks(d, in + 3 * stride, stride);
  const auto ab = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)), ce = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)),
             ab2 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b)), ce2 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)), d, out + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab2, ce2)), d, out + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab2, ce2)), d, out + 3 * width);
}

/// transpose() for the columns that fill whole vectors; returns their number.
std::int64_t transpose_words(const std::uint32_t* in, std::int64_t stride, std::int64_t count, std::int64_t n, std::int64_t width,
                             std::uint32_t* out) {
  constexpr Squares d;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(d)), square = std::int64_t{4};
  const std::int64_t columns = count / lanes * lanes, rows = n / square * square;
  for (std::int64_t c = 0; c < columns; c += lanes) {
    for (std::int64_t r = 0; r < rows; r += square) transpose_squares(d, in + c * stride + r, stride, width, out + r * width + c);
    for (std::int64_t r = rows; r < n; ++r)
      for (std::int64_t i = c; i < c + lanes; ++i) out[r * width + i] = in[i * stride + r];
  }
  return columns;
}

/// transpose_words() for 16-bit elements: first joins two successive rows into rows of words.
std::int64_t transpose_halves(const std::uint16_t* in, std::int64_t stride, std::int64_t count, std::int64_t n,
                              std::int64_t width, std::uint16_t* out) {
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(Squares()));
  if (width % 2 != 0) return 0;
  alignas(64) std::uint32_t words[lanes * kSquare];
  const std::int64_t columns = count / (2 * lanes) * (2 * lanes), rows = n / kSquare * kSquare;
  for (std::int64_t c = 0; c < columns; c += 2 * lanes) {
    for (std::int64_t r = 0; r < rows; r += kSquare) {
      for (std::int64_t i = 0; i < lanes; ++i) {
        const std::uint16_t *even = in + (c + 2 * i) * stride + r, *odd = even + stride;
        for (std::int64_t j = 0; j < kSquare; ++j) words[i * kSquare + j] = even[j] | (std::uint32_t{odd[j]} << 16);
      }
      transpose_words(words, kSquare, lanes, kSquare, width / 2, reinterpret_cast<std::uint32_t*>(out + r * width + c));
    }
    for (std::int64_t r = rows; r < n; ++r)
      for (std::int64_t i = c; i < c + 2 * lanes; ++i) out[r * width + i] = in[i * stride + r];
  }
  return columns;
}

#endif

/// out[n][columns] = in[count][n] transposed, with out rows `width` apart; zero beyond `count` columns.
template <class E>
void transpose_any(const E* in, std::int64_t stride, std::int64_t count, std::int64_t n, std::int64_t width,
                   std::int64_t all_columns, E* out) {
  for (std::int64_t c0 = 0; c0 < all_columns; c0 += kSquare) {
    const std::int64_t columns = std::min(kSquare, all_columns - c0), filled = std::clamp<std::int64_t>(count - c0, 0, columns);
    for (std::int64_t r0 = 0; r0 < n; r0 += kSquare) {
      const std::int64_t rows = std::min(kSquare, n - r0);
      E square[kSquare][kSquare] = {};
      for (std::int64_t c = 0; c < filled; ++c)
        for (std::int64_t r = 0; r < rows; ++r) square[r][c] = in[(c0 + c) * stride + r0 + r];
      for (std::int64_t r = 0; r < rows; ++r) std::copy_n(square[r], columns, out + (r0 + r) * width + c0);
    }
  }
}

/// out[n][width] = in[count][n] transposed, for any trivial element type; zero beyond `count` columns.
template <class E>
void transpose(const E* in, std::int64_t stride, std::int64_t count, std::int64_t n, std::int64_t width, E* out) {
  std::int64_t columns = 0;
  if constexpr (sizeof(E) == sizeof(std::uint32_t)) {
    columns = transpose_words(reinterpret_cast<const std::uint32_t*>(in), stride, count, n, width,
                              reinterpret_cast<std::uint32_t*>(out));
  } else {
    columns = transpose_halves(in, stride, count, n, width, out);
  }
  if (columns < width) transpose_any(in + columns * stride, stride, count - columns, n, width, width - columns, out + columns);
}

template <class T>
void transpose_rows(const HeadSlice<T>& rows, std::int64_t width, T* out) {
  transpose(rows.data, rows.row_stride, rows.count, rows.head_dim, width, out);
}

/// True if rows consist of whole, aligned words of two features.
bool are_words(const HeadSlice<Bf16>& rows) {
  return rows.head_dim % 2 == 0 && rows.row_stride % 2 == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % alignof(std::uint32_t) == 0;
}

/// transpose_rows() for kSquare rows: transposes words, then splits each in two.
void transpose_square_widened(const HeadSlice<Bf16>& rows, std::int64_t width, float* out) {
  alignas(64) std::uint32_t words[kSquare * kSquare];
  for (std::int64_t i0 = 0; i0 < rows.head_dim; i0 += 2 * kSquare) {
    const std::int64_t count = std::min(kSquare, (rows.head_dim - i0) / 2);
    transpose(reinterpret_cast<const std::uint32_t*>(rows.data + i0), rows.row_stride / 2, kSquare, count, kSquare, words);
    for (std::int64_t i = 0; i < count; ++i) {
      float *even = out + (i0 + 2 * i) * width, *odd = even + width;
      for_vectors(kSquare, [&](std::size_t c, auto extent) HWY_ATTR {
        const auto pair = hn::BitCast(Words(), load(reinterpret_cast<const float*>(words) + i * kSquare + c, extent));
        store(hn::BitCast(Floats(), hn::ShiftLeft<16>(pair)), even + c, extent);
        store(hn::BitCast(Floats(), hn::And(pair, hn::Set(Words(), 0xFFFF0000))), odd + c, extent);
      });
    }
  }
}

void transpose_rows(const HeadSlice<Bf16>& rows, std::int64_t width, float* out) {
  const std::int64_t squares = are_words(rows) ? rows.count / kSquare * kSquare : 0;
  for (std::int64_t c = 0; c < squares; c += kSquare)
    transpose_square_widened({rows.data + c * rows.row_stride, rows.row_stride, kSquare, rows.head_dim}, width, out + c);
  for (std::int64_t c = squares; c < width; ++c)
    for (std::int64_t i = 0; i < rows.head_dim; ++i)
      out[i * width + c] = c < rows.count ? load_one(rows.data + c * rows.row_stride + i) : 0.0F;
}

template <class T>
void pack_rows(const HeadSlice<T>& rows, std::int64_t padded_rows, float* out) {
  copy_rows(rows, padded_rows, rows.head_dim, out);
}
template <class T>
void pack_transposed(const HeadSlice<T>& rows, std::int64_t, std::int64_t width, float* out) {
  transpose_rows(rows, width, out);
}

void pack_rows(const HeadSlice<Bf16>& rows, std::int64_t padded_rows, Bf16* out) {
  constexpr std::int64_t kAhead = 16;  // prefetch distance in rows, which lie too far apart for hardware prefetching
  for (std::int64_t r = 0; r < padded_rows; r += 2) {
    auto* words = reinterpret_cast<std::uint32_t*>(out + r * rows.head_dim);
    const Bf16 *even = rows.data + r * rows.row_stride, *odd = even + rows.row_stride;
    if (r + kAhead + 1 < rows.count) {
      hwy::Prefetch(even + kAhead * rows.row_stride);
      hwy::Prefetch(odd + kAhead * rows.row_stride);
    }
    if (r + 1 < rows.count) {
      for (std::int64_t i = 0; i < rows.head_dim; ++i) words[i] = even[i] | (std::uint32_t{odd[i]} << 16);
    } else if (r < rows.count) {
      for (std::int64_t i = 0; i < rows.head_dim; ++i) words[i] = even[i];
    } else {
      std::fill_n(words, rows.head_dim, 0U);
    }
  }
}

void pack_transposed(const HeadSlice<Bf16>& rows, std::int64_t padded_dim, std::int64_t width, Bf16* out) {
  // Transposes words. An odd last feature (its word would reach past the row) and odd strides take the slow path below.
  auto* words = reinterpret_cast<std::uint32_t*>(out);
  if (are_words(rows)) {
    return transpose(reinterpret_cast<const std::uint32_t*>(rows.data), rows.row_stride / 2, rows.count, rows.head_dim / 2, width,
                     words);
  }
  std::fill_n(words, padded_dim / 2 * width, 0U);
  for (std::int64_t c = 0; c < rows.count; ++c) {
    const Bf16* row = rows.data + c * rows.row_stride;
    for (std::int64_t i = 0; i < rows.head_dim; ++i) words[i / 2 * width + c] |= std::uint32_t{row[i]} << (i % 2 == 0 ? 0 : 16);
  }
}

template <class T>
void sum_rows(const float* from, std::int64_t parts, std::int64_t part_stride, std::int64_t count, std::int64_t head_dim, T* to,
              std::int64_t to_stride) {
  for (std::int64_t r = 0; r < count; ++r) {
    const float* row = from + r * head_dim;
    for_vectors(static_cast<std::size_t>(head_dim), [&](std::size_t i, auto extent) HWY_ATTR {
      Vec sum = load(row + i, extent);
      for (std::int64_t part = 1; part < parts; ++part) sum = hn::Add(sum, load(row + part * part_stride + i, extent));
      store(sum, to + r * to_stride + i, extent);
    });
  }
}

template <class T>
void transposed_rows(const float* from, std::int64_t count, std::int64_t head_dim, T* to, std::int64_t to_stride) {
  alignas(64) float rows[kSquare * kSquare];
  for (std::int64_t r0 = 0; r0 < count; r0 += kSquare) {
    const std::int64_t height = std::min(kSquare, count - r0);
    for (std::int64_t c0 = 0; c0 < head_dim; c0 += kSquare) {
      const std::int64_t width = std::min(kSquare, head_dim - c0);
      transpose(from + c0 * kAttentionTile + r0, kAttentionTile, width, height, kSquare, rows);
      for (std::int64_t r = 0; r < height; ++r) {
        const float* row = rows + r * kSquare;
        for_vectors(static_cast<std::size_t>(width), [&](std::size_t i, auto extent) HWY_ATTR {
          store(load(row + i, extent), to + (r0 + r) * to_stride + c0 + static_cast<std::int64_t>(i), extent);
        });
      }
    }
  }
}

template <class T>
void dots(const HeadSlice<T>& a, const HeadSlice<T>& b, float* out) {
  for (std::int64_t r = 0; r < a.count; ++r) {
    const T *x = a.data + r * a.row_stride, *y = b.data + r * b.row_stride;
    Vec sum = splat(0.0F);
    for_vectors(static_cast<std::size_t>(a.head_dim),
                [&](std::size_t i, auto extent) HWY_ATTR { sum = hn::MulAdd(load(x + i, extent), load(y + i, extent), sum); });
    out[r] = sum_of(sum);
  }
}

template <class T, class E>
PackingKernels<T, E> kernels() {
  return {&copy_rows<T, E>, &transpose_rows, &pack_rows, &pack_transposed, &sum_rows<T>, &transposed_rows<T>, &dots<T>};
}
PackingKernels<float, float> packing_kernels_f32() {
  return kernels<float, float>();
}
PackingKernels<Bf16, Bf16> packing_kernels_bf16() {
  return kernels<Bf16, Bf16>();
}
PackingKernels<Bf16, float> packing_kernels_widened() {
  return kernels<Bf16, float>();
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(packing_kernels_f32);
HWY_EXPORT(packing_kernels_bf16);
HWY_EXPORT(packing_kernels_widened);

template <>
PackingKernels<float, float> packing_kernels() {
  return HWY_DYNAMIC_DISPATCH(packing_kernels_f32)();
}
template <>
PackingKernels<Bf16, Bf16> packing_kernels() {
  return HWY_DYNAMIC_DISPATCH(packing_kernels_bf16)();
}
template <>
PackingKernels<Bf16, float> packing_kernels() {
  return HWY_DYNAMIC_DISPATCH(packing_kernels_widened)();
}

}  // namespace qft::ops::cpu
#endif

// Products of small fp32 matrices in cache. Each element is one chain of multiply-adds in the order of the inner index, for any
// number of rows: a row has the same bits alone as in a whole matrix. Included once per target, after vector-inl.h.
#include "../common/targets_cpu.h"  // outside of the toggle: compiles the including file for the other targets first

#if defined(QFT_OPS_SMALL_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QFT_OPS_SMALL_PRODUCTS_INL_H
#undef QFT_OPS_SMALL_PRODUCTS_INL_H
#else
#define QFT_OPS_SMALL_PRODUCTS_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Rows per tile.
constexpr int kTileRows = 4;

/// The nonzero part of a triangular left-hand side [rows, inner] that starts at row `first`. The other elements in a tile's rows
/// must be zero.
enum class Triangle { none, lower, upper };

/// c [rows, columns] = before * c + a b.
struct SmallProduct {
  const float* a;
  std::int64_t a_row, a_inner;  ///< strides
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, columns, inner;
  float before = 0.0F;  ///< 0: does not read c
  Triangle left = Triangle::none;
  bool lower_result = false;  ///< computes only columns [0, first + i] of row i; the others may hold garbage
  std::int64_t first = 0;
};

template <int Rows, int Vectors, class Extent>
HWY_INLINE void small_tile(const SmallProduct& p, std::int64_t row, std::int64_t column, std::int64_t begin, std::int64_t end,
                           Extent extent) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const float *a = p.a + row * p.a_row + begin * p.a_inner, *b = p.b + begin * p.b_row + column;
  float* c = p.c + row * p.c_row + column;
  const Vec before = splat(p.before);
  Vec sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      sums[r][v] = p.before == 0.0F ? splat(0.0F) : hn::Mul(load(c + r * p.c_row + v * lanes, extent), before);
  for (std::int64_t k = begin; k < end; ++k, a += p.a_inner, b += p.b_row) {
    Vec right[Vectors];
    for (int v = 0; v < Vectors; ++v) right[v] = load(b + v * lanes, extent);
    for (int r = 0; r < Rows; ++r) {
      const Vec left = splat(a[r * p.a_row]);
      for (int v = 0; v < Vectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) store(sums[r][v], c + r * p.c_row + v * lanes, extent);
}

template <int Rows>
void small_rows(const SmallProduct& p, std::int64_t row) {
  constexpr int kMost = hn::MaxLanes(Floats()) >= 16 ? 4 : 2;  // as many sums as fit into registers
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const std::int64_t begin = p.left == Triangle::upper ? p.first + row : 0;
  const std::int64_t end = p.left == Triangle::lower ? std::min(p.inner, p.first + row + Rows) : p.inner;
  const std::int64_t wanted = p.first + row + Rows;
  const std::int64_t columns = p.lower_result ? std::min(p.columns, (wanted + lanes - 1) / lanes * lanes) : p.columns;
  std::int64_t c = 0;
  for (; c + kMost * lanes <= columns; c += kMost * lanes) small_tile<Rows, kMost>(p, row, c, begin, end, Whole{});
  if constexpr (kMost > 2)
    for (; c + 2 * lanes <= columns; c += 2 * lanes) small_tile<Rows, 2>(p, row, c, begin, end, Whole{});
  for (; c + lanes <= columns; c += lanes) small_tile<Rows, 1>(p, row, c, begin, end, Whole{});
  if (c < columns) small_tile<Rows, 1>(p, row, c, begin, end, Part{static_cast<std::size_t>(columns - c)});
}

inline void multiply(const SmallProduct& p) {
  std::int64_t row = 0;
  for (; row + kTileRows <= p.rows; row += kTileRows) small_rows<kTileRows>(p, row);
  for (; row < p.rows; ++row) small_rows<1>(p, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle

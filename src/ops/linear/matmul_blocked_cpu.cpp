#include "matmul_blocked_cpu.h"

#include <algorithm>

#include "../common/packing_cpu.h"
#include "../common/tensor_args.h"
#include "narrow_products_cpu.h"

namespace qft::ops::blocked {
namespace {

using cpu::Bf16;

/// Result columns per task and per packed right-hand side.
constexpr std::int64_t kPanel = 32;
/// Rows of the right-hand side that are packed at a time.
constexpr std::int64_t kInner = 1024;
/// Rows of the result that a task holds in fp32: the maximum, and the minimum to which tasks shrink to occupy all threads.
constexpr std::int64_t kMaxRows = 2048, kMinRows = 128;
/// Left-hand side elements that are widened at a time, unless kMinRows rows have more.
constexpr std::int64_t kMaxWidened = std::int64_t{1} << 24;

/// A left-hand side. brgemm reads whole units of rows; the last, partial unit is in a padded copy.
template <class E>
struct Left {
  const E *data, *tail;
  std::int64_t stride, columns, whole_rows;

  /// Number of elements in the copy.
  static std::int64_t copy_elements(const at::Tensor& a) { return kRowUnit * a.size(1); }

  Left(const at::Tensor& a, E* copy)
      : data(const_data<Bf16>(a)),
        tail(copy),
        stride(a.stride(0)),
        columns(a.size(1)),
        whole_rows(a.size(0) / kRowUnit * kRowUnit) {
    if (whole_rows == a.size(0)) return;
    cpu::packing_kernels<Bf16, E>().copy({data + whole_rows * stride, stride, a.size(0) - whole_rows, columns}, kRowUnit, columns,
                                         copy);
  }
};

/// Widened to float, the copy holds the whole matrix.
template <>
struct Left<float> {
  const float *data, *tail = nullptr;
  std::int64_t stride, columns, whole_rows;

  static std::int64_t copy_elements(const at::Tensor& a) { return padded(a.size(0), kRowUnit) * a.size(1); }

  Left(const at::Tensor& a, float* copy)
      : data(copy), stride(a.size(1)), columns(a.size(1)), whole_rows(padded(a.size(0), kRowUnit)) {
    for_tasks(whole_rows / kRowUnit, [&](std::int64_t task, std::int64_t) {
      const std::int64_t row = task * kRowUnit, rows = std::min(kRowUnit, a.size(0) - row);
      cpu::packing_kernels<Bf16, float>().copy({const_data<Bf16>(a) + row * a.stride(0), a.stride(0), rows, columns}, kRowUnit,
                                               columns, copy + row * columns);
    });
  }
};

/// A right-hand side, packed one panel at a time.
template <class E>
struct Right {
  const Bf16* data;
  std::int64_t row_stride, column_stride;

  explicit Right(const at::Tensor& b) : data(const_data<Bf16>(b)), row_stride(b.stride(0)), column_stride(b.stride(1)) {}

  /// Packs rows [k0, k0 + k) and columns [n0, n0 + n).
  void pack(std::int64_t k0, std::int64_t k, std::int64_t n0, std::int64_t n, E* out) const {
    const Bf16* first = data + k0 * row_stride + n0 * column_stride;
    if (column_stride == 1)
      cpu::packing_kernels<Bf16, E>().pack({first, row_stride, k, n}, k, out);
    else
      cpu::packing_kernels<Bf16, E>().pack_transposed({first, column_stride, n, k}, k, n, out);
  }
};

template <class E>
struct Term {
  Left<E> a;
  Right<E> b;
  std::int64_t column0, columns;
};

/// A product. A task computes one panel of columns for a group of rows.
template <class E>
class Multiplication {
 public:
  Multiplication(const Product& p, Workspace& workspace)
      : m_(p.out.size(0)), n_(p.out.size(1)), a_(p.a, copies(p, workspace)), b_(p.b) {
    E* copy = copies_ + Left<E>::copy_elements(p.a);
    for (const NarrowTerm& term : p.terms) {
      terms_.push_back({Left<E>(term.a, copy), Right<E>(term.b), term.column0, term.b.size(1)});
      copy += Left<E>::copy_elements(term.a);
    }
    const std::int64_t threads = at::get_num_threads();
    panels_ = (n_ + kPanel - 1) / kPanel;
    const std::int64_t groups =
        std::clamp<std::int64_t>((kTasksPerThread * threads + panels_ - 1) / panels_, (m_ + kMaxRows - 1) / kMaxRows,
                                 std::max<std::int64_t>(1, m_ / kMinRows));
    group_rows_ = padded((m_ + groups - 1) / groups, kMinRows);
    packed_ = scratch<E>(workspace, "op.matmul_packed", threads * kInner * kPanel);
    sums_ = scratch<float>(workspace, "op.matmul_sums", threads * group_rows_ * kPanel);
    store_ = {nullptr, kPanel, 0, 0, static_cast<float>(p.scale), nullptr, nullptr, p.out.stride(0)};
    out_ = data<Bf16>(p.out);
    bias_ = const_data<Bf16>(p.bias);
    if (!p.factors.defined()) return;
    store_.factors = p.factors.const_data_ptr<float>();
    store_.before = data<Bf16>(p.before);
    store_.before_stride = p.before.stride(0);
  }

  void run() {
    for_tasks(panels_ * ((m_ + group_rows_ - 1) / group_rows_), [this](std::int64_t task, std::int64_t thread) {
      compute(task / panels_ * group_rows_, task % panels_ * kPanel, packed_ + thread * kInner * kPanel,
              sums_ + thread * group_rows_ * kPanel);
    });
  }

 private:
  E* copies(const Product& p, Workspace& workspace) {
    std::int64_t count = Left<E>::copy_elements(p.a);
    for (const NarrowTerm& term : p.terms) count += Left<E>::copy_elements(term.a);
    return copies_ = scratch<E>(workspace, "op.matmul_left", count);
  }

  void compute(std::int64_t row0, std::int64_t column0, E* packed, float* sums) const {
    const std::int64_t rows = std::min(group_rows_, m_ - row0), columns = std::min(kPanel, n_ - column0);
    for (std::int64_t k0 = 0; k0 < a_.columns; k0 += kInner) {
      const std::int64_t k = std::min(kInner, a_.columns - k0);
      b_.pack(k0, k, column0, columns, packed);
      add_rows(a_, row0, rows, k0, k, packed, columns, sums, k0 > 0);
    }
    for (const Term<E>& term : terms_) {
      const std::int64_t first = std::max(column0, term.column0), end = std::min(column0 + columns, term.column0 + term.columns);
      if (first >= end) continue;
      term.b.pack(0, term.a.columns, first - term.column0, end - first, packed);
      add_rows(term.a, row0, rows, 0, term.a.columns, packed, end - first, sums + (first - column0), true);
    }
    cpu::StoreSums store = store_;
    store.sums = sums;
    store.rows = rows;
    store.columns = columns;
    store.bias = bias_ == nullptr ? nullptr : bias_ + column0;
    store.out = out_ + row0 * store.out_stride + column0;
    if (store.factors != nullptr) {
      store.factors += column0;
      store.before += row0 * store.before_stride + column0;
    }
    cpu::store_sums(store);
  }

  /// sums = (or +=) rows [row0, row0 + rows) and columns [k0, k0 + k) of a, times the packed panel.
  static void add_rows(const Left<E>& a, std::int64_t row0, std::int64_t rows, std::int64_t k0, std::int64_t k, const E* packed,
                       std::int64_t columns, float* sums, bool add) {
    for (std::int64_t done = 0; done < rows;) {
      const std::int64_t row = row0 + done;
      float* to = sums + done * kPanel;
      if (row >= a.whole_rows) {
        product(kRowUnit, columns, k, a.tail + k0, a.columns, packed, columns, to, kPanel, add);
        return;
      }
      const std::int64_t left = std::min(padded(rows - done, kRowUnit), a.whole_rows - row);
      const std::int64_t block = row_block(left);
      product(block, columns, k, a.data + row * a.stride + k0, a.stride, packed, columns, to, kPanel, add);
      done += block;
    }
  }

  std::int64_t m_, n_, panels_ = 0, group_rows_ = 0;
  E* copies_ = nullptr;
  Left<E> a_;
  Right<E> b_;
  std::vector<Term<E>> terms_;
  E* packed_ = nullptr;
  Bf16* out_ = nullptr;
  const Bf16* bias_ = nullptr;
  float* sums_ = nullptr;
  cpu::StoreSums store_{};
};

/// Packing puts two successive rows of b together: the number of rows must be even.
bool factors(const at::Tensor& a, const at::Tensor& b) {
  return is_bf16(a) && is_bf16(b) && has_contiguous_rows(a) && (b.stride(1) == 1 || b.stride(0) == 1) && a.size(1) > 0 &&
         a.size(1) % 2 == 0;
}

bool can_multiply(const Product& p) {
  return supports(p.out) && p.out.numel() > 0 && has_contiguous_rows(p.out) && factors(p.a, p.b) &&
         (!p.bias.defined() || is_bf16(p.bias)) &&
         std::ranges::all_of(p.terms, [&](const NarrowTerm& t) { return factors(t.a, t.b) && t.a.size(1) <= kInner; });
}

/// Returns the number of rows that are widened at a time, to stay within kMaxWidened elements. m may be 0.
std::int64_t rows_widened(std::int64_t m, std::int64_t k) {
  const std::int64_t parts = std::max<std::int64_t>(1, (m * k + kMaxWidened - 1) / kMaxWidened);
  return padded((m + parts - 1) / parts, kMinRows);
}

Product rows_of(Product p, std::int64_t first, std::int64_t count) {
  p.out = p.out.narrow(0, first, count);
  p.a = p.a.narrow(0, first, count);
  if (p.before.defined()) p.before = p.before.narrow(0, first, count);
  for (NarrowTerm& term : p.terms) term.a = term.a.narrow(0, first, count);
  return p;
}

}  // namespace

bool multiply(const Product& p, Workspace& workspace, TileType tile_type) {
  if (!can_multiply(p)) return false;
  if (tile_type == TileType::bf16) {
    Multiplication<Bf16>(p, workspace).run();
    return true;
  }
  if (!p.factors.defined() && narrow::supports(p)) {
    narrow::multiply(p, workspace);
    return true;
  }
  const std::int64_t m = p.out.size(0), step = rows_widened(m, p.a.size(1));
  for (std::int64_t first = 0; first < m; first += step)
    Multiplication<float>(rows_of(p, first, std::min(step, m - first)), workspace).run();
  return true;
}

std::int64_t operand_copy_bytes(std::int64_t m, std::int64_t k, TileType tile_type) {
  if (tile_type == TileType::bf16) return kRowUnit * k * element_size(tile_type);
  return padded(std::min(m, rows_widened(m, k)), kRowUnit) * k * std::int64_t{sizeof(float)};
}

}  // namespace qft::ops::blocked

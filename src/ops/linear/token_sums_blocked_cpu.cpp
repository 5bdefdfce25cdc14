#include "token_sums_blocked_cpu.h"

#include "qft/core/error.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "../common/packing_cpu.h"
#include "../common/tensor_args.h"
#include "narrow_products_cpu.h"
#include <c10/util/BFloat16.h>

namespace qft::ops::blocked {
namespace {

using cpu::Bf16;

/// Tokens per brgemm; the last block is padded to a multiple of kTokenUnit.
constexpr std::int64_t kTokens = 256, kTokenUnit = 64;
/// Rows of the result per task, and columns per packed panel.
constexpr std::int64_t kRows = 128, kPanel = 64;

/// One sum and its division into tasks.
template <class E>
struct Sum {
  const TokenSum* given;
  std::int64_t m, n, panels, row_groups, column_groups;
  E* packed;  ///< [panels][tokens of a chunk, padded][kPanel]

  Sum(const TokenSum& s, std::int64_t threads)
      : given(&s),
        m(s.a.size(1)),
        n(s.b.size(1)),
        panels((n + kPanel - 1) / kPanel),
        row_groups((m + kRows - 1) / kRows),
        column_groups(std::clamp<std::int64_t>((kTasksPerThread * threads + row_groups - 1) / row_groups, 1, panels)),
        packed(nullptr) {}
};

/// A task's private scratch.
template <class E>
struct Scratch {
  E* transposed;  ///< [blocks of a chunk][kRows][kTokens]
  float* sums;    ///< [kRows][kPanel]
};

/// Tokens [first, first + count).
struct Chunk {
  std::int64_t first, count;
  std::int64_t blocks() const { return (count + kTokens - 1) / kTokens; }
  std::int64_t padded_count() const { return padded(count, kTokenUnit); }
  /// Number of tokens in block b, without and with padding.
  std::int64_t tokens(std::int64_t b) const { return std::min(kTokens, count - b * kTokens); }
  std::int64_t padded_tokens(std::int64_t b) const { return padded(tokens(b), kTokenUnit); }
};

template <class T>
void add_elements(const float* sums, std::int64_t rows, std::int64_t columns, T* out, const at::Tensor& like) {
  // The inner loop follows the result's contiguous dimension.
  for (std::int64_t c = 0; c < columns; ++c)
    for (std::int64_t r = 0; r < rows; ++r) {
      T& to = out[r * like.stride(0) + c * like.stride(1)];
      to = static_cast<T>(static_cast<float>(to) + sums[r * kPanel + c]);
    }
}

/// out[row0 + r][column0 + c] += sums[r][c]
void add_to(const at::Tensor& out, std::int64_t row0, std::int64_t column0, std::int64_t rows, std::int64_t columns,
            const float* sums) {
  const std::int64_t first = row0 * out.stride(0) + column0 * out.stride(1);
  if (out.scalar_type() == at::kFloat) {
    add_elements(sums, rows, columns, out.data_ptr<float>() + first, out);
  } else if (out.stride(1) == 1) {
    auto* to = data<Bf16>(out) + first;
    cpu::store_sums({sums, kPanel, rows, columns, 1.0F, nullptr, to, out.stride(0), /*add=*/true});
  } else {
    add_elements(sums, rows, columns, out.data_ptr<at::BFloat16>() + first, out);
  }
}

/// Packs one token block of one panel.
template <class E>
void pack(const Sum<E>& s, const Chunk& chunk, std::int64_t panel, std::int64_t block) {
  const at::Tensor& b = s.given->b;
  const std::int64_t columns = std::min(kPanel, s.n - panel * kPanel);
  cpu::packing_kernels<Bf16, E>().pack({const_data<Bf16>(b) + (chunk.first + block * kTokens) * b.stride(0) + panel * kPanel,
                                        b.stride(0), chunk.tokens(block), columns},
                                       chunk.padded_tokens(block),
                                       s.packed + panel * kPanel * chunk.padded_count() + block * kTokens * columns);
}

/// Adds a block of tokens to sums [rows][columns]; rows lie `stride` apart.
template <class E>
void add_block(std::int64_t rows, std::int64_t columns, std::int64_t tokens, const E* transposed, const E* packed, float* sums,
               std::int64_t stride, bool add) {
  for (std::int64_t r = 0; r < rows;) {
    const std::int64_t left = rows - r, height = left < kRowUnit ? left : row_block(left);
    product(height, columns, tokens, transposed + r * kTokens, kTokens, packed, columns, sums + r * stride, stride, add);
    r += height;
  }
}

/// Sums one row group and one group of panels over a chunk.
template <class E>
void add_group(const Sum<E>& s, const Chunk& chunk, std::int64_t row_group, std::int64_t column_group,
               const Scratch<E>& scratch) {
  const at::Tensor &a = s.given->a, &out = s.given->out;
  const std::int64_t row0 = row_group * kRows, rows = std::min(kRows, s.m - row0);
  for (std::int64_t b = 0; b < chunk.blocks(); ++b)
    cpu::packing_kernels<Bf16, E>().transpose(
        {const_data<Bf16>(a) + (chunk.first + b * kTokens) * a.stride(0) + row0, a.stride(0), chunk.tokens(b), rows}, kTokens,
        scratch.transposed + b * kRows * kTokens);
  const bool in_place = out.scalar_type() == at::kFloat && out.stride(1) == 1 && out.stride(0) >= s.n;
  const std::int64_t end = s.panels * (column_group + 1) / s.column_groups;
  for (std::int64_t panel = s.panels * column_group / s.column_groups; panel < end; ++panel) {
    const std::int64_t column0 = panel * kPanel, columns = std::min(kPanel, s.n - column0);
    float* sums = in_place ? out.data_ptr<float>() + row0 * out.stride(0) + column0 : scratch.sums;
    for (std::int64_t b = 0; b < chunk.blocks(); ++b)
      add_block(rows, columns, chunk.padded_tokens(b), scratch.transposed + b * kRows * kTokens,
                s.packed + column0 * chunk.padded_count() + b * kTokens * columns, sums, in_place ? out.stride(0) : kPanel,
                in_place || b > 0);
    if (!in_place) add_to(out, row0, column0, rows, columns, sums);
  }
}

/// Calls f(sum, first, second, thread) for each sum and all pairs (first, second) within counts(sum).
template <class E, class Counts, class F>
void for_pairs(const std::vector<Sum<E>>& sums, const Counts& counts, const F& f) {
  std::int64_t total = 0;
  for (const Sum<E>& s : sums) total += counts(s).first * counts(s).second;
  for_tasks(total, [&](std::int64_t task, std::int64_t thread) {
    const Sum<E>* s = sums.data();
    for (; task >= counts(*s).first * counts(*s).second; ++s) task -= counts(*s).first * counts(*s).second;
    f(*s, task / counts(*s).second, task % counts(*s).second, thread);
  });
}

template <class E>
void run(std::span<const TokenSum> given, Workspace& workspace) {
  if (given.empty()) return;
  const std::int64_t threads = at::get_num_threads(), tokens = given.front().a.size(0);
  const std::int64_t held = padded(std::min(tokens, kSumChunk), kTokenUnit);
  std::vector<Sum<E>> sums;
  std::int64_t packed_elements = 0;
  for (const TokenSum& g : given) {
    QFT_ASSERT(g.a.size(0) == tokens && g.b.size(0) == tokens,
               "all sums of a call need the same number of tokens: {}, {} and {} given", tokens, g.a.size(0), g.b.size(0));
    packed_elements += sums.emplace_back(g, threads).panels * kPanel * held;
  }
  auto* packed = scratch<E>(workspace, "op.sum_packed", packed_elements);
  auto* transposed = scratch<E>(workspace, "op.sum_transposed", threads * kRows * padded(held, kTokens));
  auto* results = scratch<float>(workspace, "op.matmul_sums", threads * kRows * kPanel);
  for (Sum<E>& s : sums) {
    s.packed = packed;
    packed += s.panels * kPanel * held;
  }
  for (std::int64_t first = 0; first < tokens; first += kSumChunk) {
    const Chunk chunk{first, std::min(kSumChunk, tokens - first)};
    for_pairs(
        sums, [&](const Sum<E>& s) { return std::pair(s.panels, chunk.blocks()); },
        [&](const Sum<E>& s, std::int64_t panel, std::int64_t block, std::int64_t) { pack(s, chunk, panel, block); });
    for_pairs(
        sums, [](const Sum<E>& s) { return std::pair(s.row_groups, s.column_groups); },
        [&](const Sum<E>& s, std::int64_t rows, std::int64_t columns, std::int64_t thread) {
          add_group(s, chunk, rows, columns,
                    {transposed + thread * kRows * padded(held, kTokens), results + thread * kRows * kPanel});
        });
  }
}

bool can_add(const TokenSum& s) {
  return supports(s.a) && is_bf16(s.b) && has_contiguous_rows(s.a) && has_contiguous_rows(s.b) &&
         (s.out.scalar_type() == at::kFloat || is_bf16(s.out));
}

}  // namespace

bool add_token_sums(std::span<const TokenSum> sums, Workspace& workspace, TileType tile_type) {
  if (!std::ranges::all_of(sums, can_add)) return false;
  if (tile_type == TileType::bf16) {
    run<Bf16>(sums, workspace);
    return true;
  }
  std::vector<TokenSum> all(sums.begin(), sums.end());
  const auto wide = std::stable_partition(all.begin(), all.end(), [](const TokenSum& s) { return narrow::supports(s); });
  narrow::add_token_sums({all.begin(), wide}, workspace);
  run<float>({wide, all.end()}, workspace);
  return true;
}

std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType grad) {
  const TileType tile_type = preferred_tile_type(at::kBFloat16);
  if (tile_type == TileType::fp32 && narrow::supports(rows, grad)) return narrow::token_sum_bytes(tokens, rows);
  const std::int64_t held = std::min(tokens, kSumChunk);
  const std::int64_t item = element_size(tile_type);
  const std::int64_t of_thread = kRows * held * item + kRows * kPanel * std::int64_t{sizeof(float)};
  return held * columns * item + at::get_num_threads() * of_thread;
}

}  // namespace qft::ops::blocked

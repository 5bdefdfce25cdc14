#include "qft/ops/oft.h"

#include "qft/core/error.h"

#include <algorithm>
#include <vector>

#include "linear_parts.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

/// Tokens per product when the rotations' gradients are summed; each product is rounded to the dtype of its factors.
constexpr std::int64_t kSumTokens = 1024;

/// Returns the flattened positions above the diagonal of a block.
at::Tensor upper_places(std::int64_t block, c10::Device device) {
  const at::Tensor at = at::triu_indices(block, block, 1, at::TensorOptions().dtype(at::kLong));
  return (at[0] * block + at[1]).to(device);
}

/// Builds the skew-symmetric [blocks, b, b] from the elements above the diagonal.
at::Tensor skew_blocks(const at::Tensor& skew, const at::Tensor& rotations) {
  const std::int64_t blocks = rotations.size(0), b = rotations.size(1);
  at::Tensor upper = at::zeros({blocks, b * b}, rotations.options());
  upper.index_copy_(1, upper_places(b, rotations.device()), skew.to(rotations.scalar_type()));
  upper = upper.view({blocks, b, b});
  return upper - upper.transpose(1, 2);
}

at::Tensor identity(const at::Tensor& like) {
  return at::eye(like.size(-1), like.options()).expand(like.sizes());
}

/// Returns S_1, S_2, ...: R - I = Q S_1, S_k = c_k I + Q S_{k+1}.
std::vector<at::Tensor> horner(const at::Tensor& q, CayleyTerms terms) {
  const std::vector<double> series = cayley_series(terms);
  std::vector<at::Tensor> sums(series.size());
  for (std::size_t k = series.size(); k-- > 0;) {
    sums[k] = identity(q) * series[k];
    if (k + 1 < series.size()) sums[k].add_(at::bmm(q, sums[k + 1]));
  }
  return sums;
}

/// Returns Q's gradient from R's gradient.
at::Tensor skew_gradient(const at::Tensor& g, const at::Tensor& q, CayleyTerms terms, const at::Tensor& rotations) {
  if (terms == kCayleyExact)
    return -at::linalg_solve(identity(q) - q, at::bmm((rotations + 2 * identity(q)).transpose(1, 2), g), /*left=*/false);
  const std::vector<at::Tensor> sums = horner(q, terms);
  at::Tensor all = at::bmm(g, sums[0].transpose(1, 2)), left = g;
  for (std::size_t k = 1; k < sums.size(); ++k) {
    left = -at::bmm(q, left);
    all.add_(at::bmm(left, sums[k].transpose(1, 2)));
  }
  return all;
}

/// Rows grouped by rotation: [blocks, T, b], or [1, T blocks, b] if one rotation serves all blocks.
struct BlockView {
  std::int64_t tokens, columns, blocks, block;
  bool shared;

  BlockView(const at::Tensor& x, const OftPart& part)
      : tokens(x.size(0)),
        columns(x.size(1)),
        blocks(x.size(1) / part.rotations.size(1)),
        block(part.rotations.size(1)),
        shared(part.rotations.size(0) < blocks) {}

  /// Returns this view of tokens [T, columns], without copying.
  at::Tensor seen(const at::Tensor& rows) const {
    if (shared) return rows.view({1, tokens * blocks, block});
    return rows.view({tokens, blocks, block}).transpose(0, 1);
  }
  /// Returns the same, contiguous.
  at::Tensor gathered(const at::Tensor& rows, const char* name, Workspace& workspace) const {
    if (shared) return seen(rows);
    const at::Tensor held = workspace.get(name, {blocks, tokens, block}, rows.scalar_type());
    held.copy_(seen(rows));
    return held;
  }
};

at::Tensor in_type(const at::Tensor& rotations, at::ScalarType type, Workspace& workspace) {
  if (rotations.scalar_type() == type) return rotations;
  const at::Tensor held = workspace.get("op.oft_rotations", rotations.sizes(), type);
  held.copy_(rotations);
  return held;
}

at::Tensor product(const at::Tensor& blocks, const at::Tensor& rotations, Workspace& workspace) {
  at::Tensor out = workspace.get("op.oft_product", blocks.sizes(), blocks.scalar_type());
  at::bmm_out(out, blocks, rotations);
  return out;
}

/// Computes x R row by row: batch-invariant.
void rotate_few_rows(const at::Tensor& x, const OftPart& part, const at::Tensor& rotated, Workspace& workspace) {
  const at::Tensor rotations = in_type(part.rotations, x.scalar_type(), workspace);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor row = x.narrow(0, t, 1);
    const BlockView one(row, part);
    at::Tensor out = one.seen(rotated.narrow(0, t, 1));
    at::add_out(out, one.seen(row), product(one.gathered(row, "op.oft_blocks", workspace), rotations, workspace));
  }
}

/// Returns the linear for these rows, without OFT.
LinearWeights rows_of(const LinearWeights& w, std::int64_t row0, std::int64_t rows, bool bias) {
  return {w.weight.narrow(0, row0, rows), bias && w.bias.defined() ? w.bias.narrow(0, row0, rows) : at::Tensor(), {}};
}

/// gskew += the gradient from the sum over tokens of x^T g, block by block.
void add_skew_gradient(const at::Tensor& x, const at::Tensor& g, const OftPart& part, std::int64_t step,
                       const at::Tensor& gskew) {
  const at::Tensor sums = at::zeros(part.rotations.sizes(), part.rotations.options());
  for (std::int64_t first = 0; first < x.size(1); first += step) {
    const std::int64_t n = std::min(step, x.size(1) - first);
    sums.add_(at::bmm(x.narrow(1, first, n).transpose(1, 2), g.narrow(1, first, n)));
  }
  oft_rotations_backward(sums, part.skew, part.terms, part.rotations, gskew);
}

}  // namespace

void oft_rotations(const at::Tensor& skew, CayleyTerms terms, const at::Tensor& rotations) {
  const at::Tensor q = skew_blocks(skew, rotations);
  if (terms == kCayleyExact)
    rotations.copy_(at::linalg_solve(identity(q) + q, -2 * q, /*left=*/false));
  else
    rotations.copy_(at::bmm(q, horner(q, terms).front()));
}

void oft_rotations_backward(const at::Tensor& grotations, const at::Tensor& skew, CayleyTerms terms, const at::Tensor& rotations,
                            const at::Tensor& gskew) {
  const std::int64_t b = rotations.size(1);
  const at::Tensor g = skew_gradient(grotations.to(rotations.scalar_type()), skew_blocks(skew, rotations), terms, rotations);
  const at::Tensor both = (g - g.transpose(1, 2)).reshape({rotations.size(0), b * b});
  gskew.add_(both.index_select(1, upper_places(b, rotations.device())));
}

std::int64_t oft_scratch_bytes(std::int64_t tokens, std::int64_t columns, std::int64_t block, at::ScalarType compute,
                               bool training) {
  const auto item = static_cast<std::int64_t>(c10::elementSize(compute));
  const std::int64_t wide = compute == at::kDouble ? 8 : 4;
  // Tokens: x and the gradient in blocks, the product, and its input. Rotations: R - I, and the series terms of its gradient.
  return columns * (tokens * (training ? 5 : 3) * item + block * (item + (training ? 12 : 0) * wide));
}

void oft_forward(const at::Tensor& x, const LinearWeights& w, const at::Tensor& y, Workspace& workspace) {
  const bool few = x.size(0) <= kMaxGemvRows;
  const BlockView layout(x, w.oft.front());
  at::Tensor blocks;
  if (!few) blocks = layout.gathered(x, "op.oft_blocks", workspace);
  for (const OftPart& part : w.oft) {
    QFT_ASSERT(part.rotations.sizes() == w.oft.front().rotations.sizes(),
               "OFT parts of one product differ in block size: {} and {}", part.rotations.size(1), layout.block);
    const at::Tensor rotated = workspace.get("op.oft_x", x.sizes(), x.scalar_type());
    if (few) {
      rotate_few_rows(x, part, rotated, workspace);
    } else {
      at::Tensor out = layout.seen(rotated);
      at::add_out(out, layout.seen(x), product(blocks, in_type(part.rotations, x.scalar_type(), workspace), workspace));
    }
    linear_forward(rotated, rows_of(w, part.row0, part.rows, true), {}, y.narrow(1, part.row0, part.rows), {}, workspace);
  }
  for_gaps(w, w.oft, [&](std::int64_t row0, std::int64_t rows) {
    linear_forward(x, rows_of(w, row0, rows, true), {}, y.narrow(1, row0, rows), {}, workspace);
  });
}

void oft_backward(const LinearBackward& t, const LinearWeights& w, const LinearGrads& grads, Workspace& workspace) {
  QFT_ASSERT(!grads.weight.defined(), "OFT does not train the weight itself ({} rows)", w.weight.size(0));
  if (grads.bias.defined()) grads.bias.add_(t.gy.sum(0, false, grads.bias.scalar_type()));
  const auto type = t.gy.scalar_type();
  GradMode mode = t.mode;  // accumulate after the first part
  const at::Tensor g = workspace.get("op.oft_g", {t.gy.size(0), w.weight.size(1)}, type);
  const BlockView layout(g, w.oft.front());
  at::Tensor blocks;
  if (!grads.oft.empty()) blocks = layout.gathered(t.x, "op.oft_blocks", workspace);
  for (std::size_t i = 0; i < w.oft.size(); ++i) {
    const OftPart& part = w.oft[i];
    linear_backward({.gy = t.gy.narrow(1, part.row0, part.rows), .gx = g}, rows_of(w, part.row0, part.rows, false), {}, {},
                    workspace);
    const at::Tensor of_g = layout.gathered(g, "op.oft_gblocks", workspace);
    if (!grads.oft.empty()) add_skew_gradient(blocks, of_g, part, kSumTokens * (layout.shared ? layout.blocks : 1), grads.oft[i]);
    if (mode == GradMode::skip) continue;
    const at::Tensor rotations = in_type(part.rotations, type, workspace);
    at::Tensor out = layout.seen(t.gx);
    if (mode == GradMode::accumulate) out.add_(layout.seen(g));
    at::add_out(out, mode == GradMode::write ? layout.seen(g) : out, product(of_g, rotations.transpose(1, 2), workspace));
    mode = GradMode::accumulate;
  }
  if (mode != GradMode::skip)
    for_gaps(w, w.oft, [&](std::int64_t row0, std::int64_t rows) {
      linear_backward({.gy = t.gy.narrow(1, row0, rows), .gx = t.gx, .mode = GradMode::accumulate}, rows_of(w, row0, rows, false),
                      {}, {}, workspace);
    });
}

}  // namespace qft::ops

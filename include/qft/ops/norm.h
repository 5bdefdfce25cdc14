// Root-mean-square normalisation (Zhang & Sennrich 2019), with the roundings of transformers' LlamaRMSNorm, Qwen3NextRMSNorm or
// Olmo2RMSNorm.
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// How the weight is applied. `plain`: y = weight * round(x * rstd), where `round` rounds to x's dtype. `zero_centred`: y =
/// round((1 + weight) * x * rstd). `rounded_last`: y = round(weight * x * rstd).
enum class NormWeight : std::uint8_t { plain, zero_centred, rounded_last };

/// The columns of a norm that several ranks share; each rank has some of them.
struct SharedColumns {
  std::int64_t width = 0;                           ///< columns of all ranks
  std::function<void(const at::Tensor&)> add = {};  ///< adds up a contiguous tensor over the ranks; empty: one rank has all
  /// Ranks may have the same columns. Then one of them counts the columns in the sums, and the others have false here. Their gy
  /// are terms of these columns' gradient, and so are their gx.
  bool counted = true;
};

/// Computes y as NormWeight says; rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension.
///   x, y    [T, D], or [T, heads, D] for Qwen3's per-head norm. Unit stride in the last dimension; the others may be
///           strided (a slice of fused qkv rows). y may be x itself.
///   weight  [D]
///   rstd    [T] or [T, heads], contiguous; fp64 for fp64 data, else fp32
void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                      NormWeight form = NormWeight::plain, const SharedColumns& shared = {});

struct NormBackward {
  at::Tensor gy, x;               ///< as x above; x is the forward's
  at::Tensor weight, rstd;        ///< the forward's
  at::Tensor residual_grad = {};  ///< like gx, or undefined
  at::Tensor gx;                  ///< as x above; may be gy or residual_grad itself
  at::Tensor gweight = {};        ///< [D], the weight's dtype or a wider one; undefined if the weight is frozen
  NormWeight form = NormWeight::plain;
  SharedColumns shared = {};
};
/// gx = d(norm)/dx^T gy + residual_grad; gweight += sum over rows of gy * x * rstd.
void rms_norm_backward(const NormBackward& tensors, Workspace& workspace);

/// The gated norm on the gated delta net's output (transformers' Qwen3NextRMSNormGated).
/// y = weight * round(x * rstd) * silu(z), rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension; `round` rounds to x's dtype.
///   x, z, y  [T, heads, D], unit stride in the last dimension, any strides in the others; y may be x or z
///   weight   [D]
///   rstd     [T, heads], contiguous; fp64 for fp64 data, else fp32
void gated_norm_forward(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps, const at::Tensor& y,
                        const at::Tensor& rstd);

struct GatedNormBackward {
  at::Tensor gy, x, z, weight, rstd;  ///< all but gy are the forward's
  at::Tensor gx, gz;                  ///< like x; gx may be gy, gz may be z
  at::Tensor gweight = {};            ///< [D], accumulated, the weight's dtype or a wider one; undefined if the weight is frozen
};
/// Computes input gradients from y's gradient.
void gated_norm_backward(const GatedNormBackward& tensors, Workspace& workspace);

/// Maximum scratch bytes for forward or backward for T rows with heads * D = `columns` values.
std::int64_t gated_norm_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool on_cpu,
                                      bool backward);

}  // namespace qft::ops

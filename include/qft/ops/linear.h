// Linear projection of a projection group (q, k, v; gate, up; or a single one), with optional bias, and LoRA or OFT.
#pragma once

#include "qft/ops/cayley.h"
#include "qft/ops/dropout.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// LoRA of one projection in the group (Hu et al. 2021): adds scaling * dropout(x) A^T B^T to columns [row0, row0 + rows) of y.
struct LoraPart {
  at::Tensor a;  ///< [r, K], compute dtype
  at::Tensor b;  ///< [rows, r], compute dtype
  std::int64_t row0 = 0, rows = 0;
  double scaling = 1.0;
  std::uint32_t site = 0;          ///< DropoutKey::site of the projection
  std::int64_t first_feature = 0;  ///< DropoutKey::first_feature of x
  /// DoRA (ops/dora.h): per row magnitude / norm, and the norm; [rows], fp32 or fp64. Undefined without DoRA.
  at::Tensor factor = {}, norm = {};
};

/// OFT of one projection in the group (ops/oft.h): columns [row0, row0 + rows) of y use x R instead of x.
struct OftPart {
  /// [blocks, b (b - 1) / 2], compute dtype; a single block serves all columns of x, otherwise each block of columns has one
  at::Tensor skew;
  at::Tensor rotations;  ///< [blocks, b, b]: R - I, fp32 or fp64
  std::int64_t row0 = 0, rows = 0;
  CayleyTerms terms = kCayleyExact;
};

struct LinearWeights {
  at::Tensor weight;              ///< [N, K]: the projections' rows one after another
  at::Tensor bias;                ///< [N] or undefined
  std::vector<LoraPart> lora;     ///< by ascending row0; only projections with LoRA; DoRA applies to all of them or none
  std::vector<OftPart> oft = {};  ///< likewise for OFT, with one block size; excludes LoRA
};

/// Tensors that accumulate gradients, in the weight's dtype or a wider one. Undefined: frozen, not computed.
struct LinearGrads {
  at::Tensor weight;  ///< [N, K]
  at::Tensor bias;    ///< [N]
  struct Lora {
    at::Tensor a, b;
    at::Tensor magnitude = {};  ///< [rows], with DoRA
  };
  std::vector<Lora> lora;            ///< parallel to LinearWeights::lora, or empty
  std::vector<at::Tensor> oft = {};  ///< gradients of OftPart::skew, parallel to LinearWeights::oft, or empty
};

/// LoRA dropout as in PEFT: each projection drops x independently. p = 0 disables dropout; each part sets key.site.
struct LoraDropout {
  double p = 0.0;
  DropoutKey key;
  RowIdentity rows;
};

/// Returns the column count in `saved`: the sum over the parts' ranks (0 without LoRA), with DoRA plus their rows.
/// `w` may be a stack of experts.
std::int64_t lora_saved_columns(const LinearWeights& w);

/// Up to this many rows of x, reading the weight dominates and a dedicated kernel runs (CPU, fp32 and bf16). It is
/// batch-invariant: a row of y does not depend on the other rows of x.
inline constexpr std::int64_t kMaxGemvRows = 8;

/// y = x W^T + bias + LoRA; with OFT (x R) W^T + bias.
///   x      [T, K] contiguous
///   y      [T, N] contiguous; not x
///   saved  [T, lora_saved_columns(w)]: scaling * dropout(x) A^T of each part, for backward; undefined without LoRA.
///          With DoRA, each part's outputs before the factor follow
void linear_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                    const at::Tensor& saved, Workspace& workspace);

/// How backward writes gx.
enum class GradMode { skip, write, accumulate };

struct LinearBackward {
  at::Tensor gy;          ///< [T, N]
  at::Tensor x = {};      ///< [T, K], the forward's; may be undefined if no weight, a or skew needs a gradient
  at::Tensor saved = {};  ///< the forward's
  at::Tensor gx = {};     ///< [T, K], not gy; ignored if mode is skip
  GradMode mode = GradMode::write;
};

/// gx = (or +=) gy W + LoRA's gradient, with OFT gy W R^T; accumulates into grads.
void linear_backward(const LinearBackward& tensors, const LinearWeights& w, const LoraDropout& dropout, const LinearGrads& grads,
                     Workspace& workspace);

}  // namespace qft::ops

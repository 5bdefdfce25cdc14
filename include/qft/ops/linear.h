// Linear projection of a fused group of modules (q, k, v; gate, up; or a single one), with optional bias, and LoRA or OFT.
#pragma once

#include "qft/ops/cayley.h"
#include "qft/ops/dropout.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// LoRA of one module of the group (Hu et al. 2021): columns [row0, row0 + rows) of y get scaling * dropout(x) A^T B^T.
struct LoraPart {
  at::Tensor a;  ///< [r, K], compute dtype
  at::Tensor b;  ///< [rows, r], compute dtype
  std::int64_t row0 = 0, rows = 0;
  double scaling = 1.0;
  std::uint32_t site = 0;  ///< DropoutKey::site of the module
  /// DoRA (ops/dora.h): of each row the quotient of its magnitude and its norm, and the norm [rows], fp32 or fp64; else
  /// undefined.
  at::Tensor factor = {}, norm = {};
};

/// OFT of one module of the group (ops/oft.h): columns [row0, row0 + rows) of y are computed from x R.
struct OftPart {
  at::Tensor skew;   ///< [blocks, b (b - 1) / 2], compute dtype; one block serves all columns of x, or each has its own
  at::Tensor turns;  ///< [blocks, b, b], R - I, fp32 or fp64
  std::int64_t row0 = 0, rows = 0;
  CayleyTerms terms = kCayleyExact;
};

struct LinearWeights {
  at::Tensor weight;              ///< [N, K]: the modules' rows one after another
  at::Tensor bias;                ///< [N] or undefined
  std::vector<LoraPart> lora;     ///< by ascending row0; only modules that have LoRA; with DoRA all of them or none
  std::vector<OftPart> oft = {};  ///< likewise of OFT, in blocks of one size; then there is no LoRA
};

/// Where gradients are added. Undefined: frozen, not computed. Each has the weight's dtype or a wider one.
struct LinearGrads {
  at::Tensor weight;  ///< [N, K]
  at::Tensor bias;    ///< [N]
  struct Lora {
    at::Tensor a, b;
    at::Tensor magnitude = {};  ///< [rows], with DoRA
  };
  std::vector<Lora> lora;            ///< parallel to LinearWeights::lora, or empty
  std::vector<at::Tensor> oft = {};  ///< of OftPart::skew, parallel to LinearWeights::oft, or empty
};

/// LoRA dropout as PEFT means it: each module drops x on its own. p = 0 is no dropout; key.site comes from the part.
struct LoraDropout {
  double p = 0.0;
  DropoutKey key;
  RowIdentity rows;
};

/// Columns of `saved`: the sum of the parts' ranks (0 without LoRA), with DoRA and of their rows. `w` may be a stack of experts'.
std::int64_t lora_saved_columns(const LinearWeights& w);

/// Up to so many rows of x, reading the weight dominates and a kernel of its own runs (CPU, fp32 and bf16): a row of y has the
/// same bits, whatever other rows x has.
inline constexpr std::int64_t kFewRows = 8;

/// y = x W^T + bias + LoRA; with OFT (x R) W^T + bias.
///   x      [T, K] contiguous
///   y      [T, N] contiguous; not x
///   saved  [T, lora_saved_columns(w)]: scaling * dropout(x) A^T of each part, for backward; undefined if there is no LoRA.
///          With DoRA the outputs of each part follow, before they are multiplied with its factor
void linear_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                    const at::Tensor& saved, Workspace& workspace);

/// How gx is written.
enum class GradMode { skip, write, accumulate };

/// gx = (or +=) gy W + LoRA's, with OFT gy W R^T; grads += .
///   gy     [T, N]; x, saved: the forward's
///   gx     [T, K], not gy; ignored if mode is skip
/// x may be undefined where no gradient needs it: frozen weight and no gradient for any a or skew.
void linear_backward(const at::Tensor& gy, const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout,
                     const at::Tensor& saved, const at::Tensor& gx, GradMode mode, const LinearGrads& grads,
                     Workspace& workspace);

}  // namespace qft::ops

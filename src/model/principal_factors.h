// What PiSSA starts from. Private to model.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// A [rank, in] and B [out, rank], fp32.
struct PrincipalFactors {
  at::Tensor a, b;
};

/// A = sqrt(S / scaling) V^T and B = U sqrt(S / scaling) of the first `rank` singular values of a weight [out, in], fp32, so that
/// scaling B A is nearest to it (PEFT's pissa_init). iterations -1: by the whole decomposition; else by so many rounds of
/// subspace iteration (Halko et al. 2009, algorithm 4.4; torch.svd_lowrank) from `start` [rank, in]. The largest element of each
/// row of A is above 0, so that rounding does not choose the signs. Throws Error where the weight is not finite.
PrincipalFactors principal_factors(const at::Tensor& weight, std::int64_t rank, double scaling, std::int64_t iterations,
                                   const at::Tensor& start);

}  // namespace qft::model

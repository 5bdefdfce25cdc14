// PiSSA's initial factors. Private to model.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::model {

/// A [rank, in] and B [out, rank], fp32.
struct PrincipalFactors {
  at::Tensor a, b;
};

/// Returns A = sqrt(S / scaling) V^T and B = U sqrt(S / scaling) from the first `rank` singular values of a weight [out, in],
/// fp32, so that scaling B A is the best approximation of the weight (PEFT's pissa_init). iterations -1: by a full decomposition;
/// else by that many rounds of subspace iteration (Halko et al. 2009, algorithm 4.4; torch.svd_lowrank) from `start` [rank, in].
/// The largest element of each row of A is positive, so that rounding does not determine the signs. Throws Error if the weight is
/// not finite.
PrincipalFactors principal_factors(const at::Tensor& weight, std::int64_t rank, double scaling, std::int64_t iterations,
                                   const at::Tensor& start);

}  // namespace qft::model

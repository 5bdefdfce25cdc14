// Compares a linear of any kind with autograd of its formula.
#pragma once

#include "qft/ops/linear.h"

#include <functional>
#include <vector>

#include "ops_support.h"

namespace qft::ops::testing {

struct LinearCase {
  LinearWeights w;
  LinearGrads grads;               ///< zeros
  std::vector<at::Tensor> inputs;  ///< inputs of the formula; x is the first
};

/// Maps x to the input of a site's adapter.
using Drop = std::function<at::Tensor(const at::Tensor& x, std::uint32_t site)>;
using LinearFormula = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const Drop& drop)>;

/// Runs forward, then backward with x's gradient written, accumulated and skipped, with dropout `p`. Gradients accumulate: two of
/// the three calls leave twice the reference gradients in c.grads, which the caller compares.
Oracle compare_linear(const LinearCase& c, double p, double limit, const LinearFormula& formula);

}  // namespace qft::ops::testing

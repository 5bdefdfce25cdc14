// Lion of one element. Also compiled as host code, which fills in the numbers.
#pragma once

namespace qft::optim::cuda {

/// State: exp_avg.
struct LionElement {
  float beta1, beta2, rest1, rest2;  ///< rest: 1 - beta, rounded once
  float step_size;                   ///< learning rate
  float decay;                       ///< learning rate * weight_decay
  float grad_scale;

  __device__ void operator()(float& p, float grad, float* state) const {
    float& m = state[0];
    const float g = grad * grad_scale, direction = beta1 * m + rest1 * g;
    p -= decay * p;
    p -= direction > 0.0F ? step_size : direction < 0.0F ? -step_size : 0.0F;
    m = beta2 * m + rest2 * g;
  }
};

}  // namespace qft::optim::cuda

// AdamW of one element. Also compiled as host code, which fills in the numbers.
#pragma once

#include <cmath>

namespace qft::optim::cuda {

/// Names as in torch.optim.AdamW. State: exp_avg, exp_avg_sq.
struct AdamWElement {
  float rest1, rest2;  ///< 1 - beta1 and 1 - beta2, rounded once: computing 1 - 0.999 in fp32 is off by 1.3e-5
  float eps;
  float step_size;              ///< learning rate / (1 - beta1^t)
  float bias_correction2_sqrt;  ///< sqrt(1 - beta2^t)
  float decay;                  ///< learning rate * weight_decay
  float grad_scale;

  __device__ void operator()(float& p, float grad, float* state) const {
    float &m = state[0], &v = state[1];
    const float g = grad * grad_scale;
    p -= decay * p;
    m += rest1 * (g - m);
    v += rest2 * (g * g - v);
    p -= step_size * m / (sqrtf(v) / bias_correction2_sqrt + eps);
  }
};

}  // namespace qft::optim::cuda

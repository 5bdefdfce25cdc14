// AdamW of one element. Host code, which fills in the numbers, sees it too.
#pragma once

#include <cmath>

namespace qft::optim::cuda {

/// In torch.optim.AdamW's names. State: exp_avg, exp_avg_sq.
struct AdamWElement {
  float beta1, beta2, eps;
  float step_size;              ///< learning rate / (1 - beta1^t)
  float bias_correction2_sqrt;  ///< sqrt(1 - beta2^t)
  float decay;                  ///< learning rate * weight_decay
  float grad_scale;

  __device__ void operator()(float& p, float grad, float* state) const {
    float &m = state[0], &v = state[1];
    const float g = grad * grad_scale;
    p -= decay * p;
    m += (1.0F - beta1) * (g - m);
    v += (1.0F - beta2) * (g * g - v);
    p -= step_size * m / (sqrtf(v) / bias_correction2_sqrt + eps);
  }
};

}  // namespace qft::optim::cuda

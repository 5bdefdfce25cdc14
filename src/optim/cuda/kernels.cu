#include "kernels.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "qft/device/launch.cuh"

#include "adamw.cuh"
#include "square_sum.cuh"

namespace qft::optim::cuda {
namespace {

AdamWNumbers numbers_of(const Update& u) {
  const double t = static_cast<double>(u.step);
  return {static_cast<float>(u.options.beta1),
          static_cast<float>(u.options.beta2),
          static_cast<float>(u.options.eps),
          static_cast<float>(u.learning_rate / (1.0 - std::pow(u.options.beta1, t))),
          static_cast<float>(std::sqrt(1.0 - std::pow(u.options.beta2, t))),
          static_cast<float>(u.segment.decays ? u.learning_rate * u.options.weight_decay : 0.0),
          static_cast<float>(u.grad_scale)};
}

template <class P, class W>
void run(const Update& u) {
  const std::int64_t begin = u.segment.begin;
  const AdamWBuffers<P, W> buffers{u.master.data_ptr<P>() + begin,
                                   u.grads.const_data_ptr<P>() + begin,
                                   u.exp_avg.data_ptr<P>() + begin,
                                   u.exp_avg_sq.data_ptr<P>() + begin,
                                   u.copy.defined() ? u.copy.data_ptr<W>() + begin : nullptr,
                                   u.segment.end - begin};
  launch_adamw(buffers, numbers_of(u), device::OnStream());
}

}  // namespace

bool can_update(const FlatParams& params, const Precision& precision) {
  const bool one_type = precision.grad == precision.master && precision.state == precision.master;
  return params.grads.is_cuda() && params.weights.device() == params.grads.device() && one_type &&
         (precision.master == at::kFloat || (precision.master == at::kBFloat16 && !precision.has_master_copy())) &&
         (precision.compute == at::kFloat || precision.compute == at::kBFloat16 || precision.compute == at::kHalf);
}

void update(const Update& u) {
  if (u.master.scalar_type() == at::kBFloat16) return run<c10::BFloat16, c10::BFloat16>(u);
  if (!u.copy.defined()) return run<float, float>(u);
  if (u.copy.scalar_type() == at::kBFloat16) return run<float, c10::BFloat16>(u);
  run<float, c10::Half>(u);
}

at::Tensor square_parts(const at::Tensor& values) {
  if (!values.is_cuda() || !values.is_contiguous()) return {};
  const auto parts = [&] { return at::empty({kSquareParts}, values.options().dtype(at::kDouble)); };
  const auto run = [&]<class T>() {
    const at::Tensor out = parts();
    launch_square_sum(values.const_data_ptr<T>(), values.numel(), out.data_ptr<double>(), device::OnStream());
    return out;
  };
  if (values.scalar_type() == at::kFloat) return run.template operator()<float>();
  if (values.scalar_type() == at::kBFloat16) return run.template operator()<c10::BFloat16>();
  return {};
}

}  // namespace qft::optim::cuda

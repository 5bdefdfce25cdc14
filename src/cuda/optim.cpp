// The back end's optim part: converts tensors to arguments of the kernels in optim.cu.
#include <algorithm>
#include <cmath>

#include "../optim/cuda/launches.h"
#include "../optim/device_kernels.h"
#include "dispatch.h"
#include "parts.h"
// Must follow CUDA's headers, because they use CUDA keywords.
#include "../optim/cuda/adamw.cuh"
#include "../optim/cuda/lion.cuh"
#include <ATen/ops/empty.h>

namespace qft::cuda {
namespace {

using namespace optim;        // NOLINT: the table's own file
using namespace optim::cuda;  // NOLINT

template <class P, class W, int S, class Element>
void run_as(const Update& u, const Element& element) {
  UpdateBuffers<P, W, S> b{ops::data<P>(u.master), ops::const_data<P>(u.grads), {}, ops::data<W>(u.copy), u.master.numel()};
  for (int s = 0; s < S; ++s) b.state[s] = ops::data<P>(u.state[static_cast<std::size_t>(s)]);
  launch_update(b, element, on_current_stream());
}

/// Runs an update by a rule with S state tensors.
template <int S, class Element>
void run(const Update& u, const Element& element) {
  if (u.master.scalar_type() == at::kBFloat16) return run_as<__nv_bfloat16, __nv_bfloat16, S>(u, element);
  if (!u.copy.defined()) return run_as<float, float, S>(u, element);
  if (u.copy.scalar_type() == at::kBFloat16) return run_as<float, __nv_bfloat16, S>(u, element);
  run_as<float, __half, S>(u, element);
}

bool can_update(const Update& u) {
  const at::ScalarType type = u.master.scalar_type();
  const auto fits = [&](const at::Tensor& t) { return t.scalar_type() == type; };
  if (!u.master.is_cuda() || !fits(u.grads) || !std::all_of(u.state.begin(), u.state.end(), fits)) return false;
  if (!u.copy.defined()) return type == at::kFloat || type == at::kBFloat16;
  const at::ScalarType copy = u.copy.scalar_type();
  return u.copy.device() == u.master.device() && type == at::kFloat && (copy == at::kBFloat16 || copy == at::kHalf);
}

void update_adamw(const Update& u, const Hyper& h) {
  const double t = static_cast<double>(u.step);
  run<2>(u, AdamWElement{static_cast<float>(1.0 - h.beta1), static_cast<float>(1.0 - h.beta2), static_cast<float>(h.eps),
                         static_cast<float>(u.learning_rate / (1.0 - std::pow(h.beta1, t))),
                         static_cast<float>(std::sqrt(1.0 - std::pow(h.beta2, t))),
                         static_cast<float>(u.learning_rate * u.weight_decay), static_cast<float>(u.grad_scale)});
}

void update_lion(const Update& u, const Hyper& h) {
  run<1>(u, LionElement{static_cast<float>(h.beta1), static_cast<float>(h.beta2), static_cast<float>(1.0 - h.beta1),
                        static_cast<float>(1.0 - h.beta2), static_cast<float>(u.learning_rate),
                        static_cast<float>(u.learning_rate * u.weight_decay), static_cast<float>(u.grad_scale)});
}

at::Tensor square_parts(const at::Tensor& values) {
  if (!values.is_cuda() || !values.is_contiguous()) return {};
  const auto parts = [&] { return at::empty({kSquareParts}, values.options().dtype(at::kDouble)); };
  const auto run = [&]<class T>() {
    const at::Tensor out = parts();
    launch_square_sum(ops::const_data<T>(values), values.numel(), out.data_ptr<double>(), on_current_stream());
    return out;
  };
  if (values.scalar_type() == at::kFloat) return run.template operator()<float>();
  if (values.scalar_type() == at::kBFloat16) return run.template operator()<__nv_bfloat16>();
  return {};
}

}  // namespace

const void* optim_part() {
  static constexpr DeviceKernels kKernels{
      .can_update = can_update, .adamw = update_adamw, .lion = update_lion, .square_parts = square_parts};
  return &kKernels;
}

}  // namespace qft::cuda

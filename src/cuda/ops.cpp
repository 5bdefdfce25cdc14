// The back end's ops part: converts tensors to arguments of the kernels in ops.cu.
#include "../ops/common/device_kernels.h"
#include "../ops/common/launches_cuda.h"
#include "../ops/embedding/embedding_noise_tensor_args.h"
#include "../ops/gated_delta/gated_delta_tensor_args_cuda.h"
#include "../ops/linear/narrow_terms_tensor_args.h"
#include "dispatch.h"
#include "parts.h"
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/_grouped_mm.h>

namespace qft::cuda {
namespace {

using namespace ops;        // NOLINT: the table's own file
using namespace ops::cuda;  // NOLINT

bool norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                  NormWeight form) {
  return with_kernel_type(x, [&]<class T>() {
    launch_rms_norm_forward(norm_forward_args<T>(x, weight, eps, y, rstd, form), rstd.numel(), on_current_stream());
  });
}

bool norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                   const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight, const at::Tensor& partial,
                   NormWeight form) {
  return with_kernel_type(x, [&]<class T>() {
    const RmsNormBackward<T> args = norm_backward_args<T>(gy, x, weight, rstd, residual_grad, gx, form);
    const std::int64_t rows = rstd.numel();
    if (gweight.defined()) {
      const bool known = with_grad_type<T>(gweight, [&]<class G>() {
        launch_norm_weight_grad(args, rows, partial.data_ptr<float>(), data<G>(gweight), on_current_stream());
      });
      TORCH_CHECK(known, "a norm's weight gradient of type ", gweight.scalar_type(), " for data of type ", x.scalar_type());
    }
    launch_rms_norm_backward(args, rows, on_current_stream());
  });
}

bool rotate(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  return with_kernel_type(
      x, [&]<class T>() { launch_rope(rope_args<T>(x, positions, table, direction), x.size(0), on_current_stream()); });
}

bool swiglu(const at::Tensor& gate_up, const at::Tensor& act) {
  return with_kernel_type(
      act, [&]<class T>() { launch_swiglu_forward(swiglu_forward_args<T>(gate_up, act), act.size(0), on_current_stream()); });
}

bool swiglu_grad(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act) {
  return with_kernel_type(gact, [&]<class T>() {
    launch_swiglu_backward(swiglu_backward_args<T>(gate_up, gact, ggate_up, act), gact.size(0), on_current_stream());
  });
}

bool drop(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  return with_kernel_type(
      t.any(), [&]<class T>() { launch_dropout(dropout_args<T>(t, key, rows, p), t.any().size(0), on_current_stream()); });
}

bool add_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha) {
  return with_kernel_type(x, [&]<class T>() {
    launch_embedding_noise(embedding_noise_args<T>(x, key, rows, alpha), rows.identity.positions.size(0), on_current_stream());
  });
}

bool cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                   const at::Tensor& logprobs) {
  return with_kernel_type(logits, [&]<class T>() {
    launch_cross_entropy(cross_entropy_args<T>(logits, targets, grad_logprobs, logprobs), logits.size(0), on_current_stream());
  });
}

bool statistics_of_part(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                        const at::Tensor& statistics) {
  return with_kernel_type(logits, [&]<class T>() {
    launch_softmax_statistics(softmax_statistics_args<T>(logits, targets, vocabulary, statistics), logits.size(0),
                              on_current_stream());
  });
}

bool gradient_of_part(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                      const at::Tensor& grad_logprobs, const at::Tensor& lse) {
  return with_kernel_type(logits, [&]<class T>() {
    launch_softmax_gradient(softmax_gradient_args<T>(logits, targets, vocabulary, grad_logprobs, lse), logits.size(0),
                            on_current_stream());
  });
}

bool narrow(const at::Tensor& out, std::span<const blocked::NarrowTerm> terms, bool add) {
  constexpr int kAmpere = 8;  // the first generation with these tiles of bf16
  if (at::cuda::getCurrentDeviceProperties()->major < kAmpere) return false;
  bool done = false;
  const auto launch = [&]<class T>() {
    const auto args = narrow_terms_args<T>(out, terms, add);
    if (args) launch_narrow_terms(*args, on_current_stream());
    done = args.has_value();
  };
  if (out.scalar_type() == at::kBFloat16) launch.template operator()<__nv_bfloat16>();
  if (out.scalar_type() == at::kHalf) launch.template operator()<__half>();
  return done;
}

/// LibTorch's grouped product, only on chips with a native kernel: elsewhere it would synchronise with the device and loop over
/// groups.
at::Tensor grouped(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  const auto fits = [](const at::Tensor& t) {
    constexpr std::int64_t kBytes = 16, kItems = kBytes / 2;
    if (t.scalar_type() != at::kBFloat16 || reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % kBytes != 0) return false;
    const std::int64_t inner = t.stride(-1) == 1 ? t.stride(-2) : t.stride(-2) == 1 ? t.stride(-1) : 1;
    return inner % kItems == 0 && (t.dim() == 2 || t.stride(0) % kItems == 0);
  };
  const int chip = at::cuda::getCurrentDeviceProperties()->major;
  constexpr std::int64_t kGroups = 1024;  // LibTorch supports fewer than this many groups
  const bool served =
      (chip == 9 || chip == 10) && ends.size(0) < kGroups && fits(a) && fits(b) && (b.dim() == 2 || b.size(2) % 8 == 0);
  return served ? at::_grouped_mm(a, b, ends) : at::Tensor();
}

bool decode(const at::Tensor& bytes, const QuantizedRows& from, const at::Tensor& out) {
  return with_kernel_type(out, [&]<class T>() {
    launch_dequantize(Dequantize<T>{from, const_data<std::uint8_t>(bytes), data<T>(out)}, on_current_stream());
  });
}

bool embedding_grad(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight, const VocabularyPart& vocabulary) {
  bool done = false;
  with_kernel_type(gy, [&]<class T>() {
    done = with_grad_type<T>(gweight, [&]<class G>() {
      launch_embedding_backward(embedding_backward_args<T, G>(tokens, gy, gweight, vocabulary), on_current_stream());
    });
  });
  return done;
}

bool delta(const GatedDeltaTensors& in, const DeltaWork& work, const at::Tensor& out, const at::Tensor& states) {
  return with_kernel_type(in.v, [&]<class T>() {
    launch_delta_forward(delta_forward_args<T>(in, work, out, states), work.waves, on_current_stream());
  });
}

bool delta_grad(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states, const DeltaWork& work,
                const GatedDeltaTensors& grads) {
  return with_kernel_type(in.v, [&]<class T>() {
    launch_delta_backward(delta_backward_args<T>(gout, in, states, work, grads), work.waves, on_current_stream());
  });
}

}  // namespace

const void* ops_part() {
  static constexpr DeviceKernels kKernels{.rms_norm_forward = norm_forward,
                                          .rms_norm_backward = norm_backward,
                                          .rope = rotate,
                                          .swiglu_forward = swiglu,
                                          .swiglu_backward = swiglu_grad,
                                          .dropout = drop,
                                          .add_embedding_noise = add_noise,
                                          .cross_entropy_rows = cross_entropy,
                                          .softmax_statistics = statistics_of_part,
                                          .softmax_gradient = gradient_of_part,
                                          .narrow_terms = narrow,
                                          .grouped_product = grouped,
                                          .dequantize = decode,
                                          .embedding_backward = embedding_grad,
                                          .delta_forward = delta,
                                          .delta_backward = delta_grad};
  return &kKernels;
}

}  // namespace qft::cuda

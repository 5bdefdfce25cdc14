// Instantiates the ops kernels for the element types that ops.cpp uses.
#include "../ops/activation/swiglu_cuda.cuh"
#include "../ops/dropout/dropout_cuda.cuh"
#include "../ops/embedding/embedding_cuda.cuh"
#include "../ops/embedding/embedding_noise_cuda.cuh"
#include "../ops/head/cross_entropy_cuda.cuh"
#include "../ops/linear/narrow_terms_cuda.cuh"
#include "../ops/norm/norm_cuda.cuh"
#include "../ops/quantized/quantized_cuda.cuh"
#include "../ops/rope/rope_cuda.cuh"
#include "launch.cuh"

namespace qft::ops::cuda {

using qft::cuda::OnStream;

#define QFT_KERNELS(T)                                                                                 \
  template void launch_rms_norm_forward(const RmsNormForward<T>&, std::int64_t, const OnStream&);      \
  template void launch_rms_norm_backward(const RmsNormBackward<T>&, std::int64_t, const OnStream&);    \
  template void launch_rope(const Rope<T>&, std::int64_t, const OnStream&);                            \
  template void launch_swiglu_forward(const SwigluForward<T>&, std::int64_t, const OnStream&);         \
  template void launch_swiglu_backward(const SwigluBackward<T>&, std::int64_t, const OnStream&);       \
  template void launch_dropout(const Dropout<T>&, std::int64_t, const OnStream&);                      \
  template void launch_embedding_noise(const EmbeddingNoise<T>&, std::int64_t, const OnStream&);       \
  template void launch_cross_entropy(const CrossEntropy<T>&, std::int64_t, const OnStream&);           \
  template void launch_softmax_statistics(const SoftmaxStatistics<T>&, std::int64_t, const OnStream&); \
  template void launch_softmax_gradient(const SoftmaxGradient<T>&, std::int64_t, const OnStream&);     \
  template void launch_dequantize(const Dequantize<T>&, const OnStream&);
#define QFT_GRADIENTS(T, G)                                                                                    \
  template void launch_norm_weight_grad(const RmsNormBackward<T>&, std::int64_t, float*, G*, const OnStream&); \
  template void launch_embedding_backward(const EmbeddingBackward<T, G>&, const OnStream&);

template void launch_narrow_terms(const NarrowTerms<__nv_bfloat16>&, const OnStream&);
template void launch_narrow_terms(const NarrowTerms<__half>&, const OnStream&);
QFT_KERNELS(float)
QFT_KERNELS(__nv_bfloat16)
QFT_KERNELS(__half)
QFT_GRADIENTS(float, float)
QFT_GRADIENTS(__nv_bfloat16, __nv_bfloat16)
QFT_GRADIENTS(__nv_bfloat16, float)
QFT_GRADIENTS(__half, __half)
QFT_GRADIENTS(__half, float)

}  // namespace qft::ops::cuda

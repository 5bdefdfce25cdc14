// Host declarations of the ops kernels. A *.cuh defines each of them; cuda/*.cu instantiate them. `launch` queues a kernel on a
// stream, or runs it on the host (tests/support/simt.h).
#pragma once

#include "qft/ops/kernel_args.h"

#include <span>

#include "../embedding/embedding_noise_args.h"
#include "../gated_delta/gated_delta_args_cuda.h"
#include "../linear/narrow_terms_args.h"
#include "../quantized/quantized_rows_cuda.h"

namespace qft::ops::cuda {

template <class T, class Launch>
void launch_rms_norm_forward(const RmsNormForward<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_rms_norm_backward(const RmsNormBackward<T>& a, std::int64_t rows, const Launch& launch);

/// gweight += the norm's weight gradient; call before launch_rms_norm_backward if gx aliases gy. `partial`:
/// [norm_weight_grad_parts(rows), width].
template <class T, class G, class Launch>
void launch_norm_weight_grad(const RmsNormBackward<T>& a, std::int64_t rows, float* partial, G* gweight, const Launch& launch);

template <class T, class Launch>
void launch_rope(const Rope<T>& a, std::int64_t tokens, const Launch& launch);
template <class T, class Launch>
void launch_swiglu_forward(const SwigluForward<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_swiglu_backward(const SwigluBackward<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_dropout(const Dropout<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_embedding_noise(const EmbeddingNoise<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_cross_entropy(const CrossEntropy<T>& a, std::int64_t rows, const Launch& launch);
/// Blocks of launch_narrow_terms() for this many columns.
constexpr int term_blocks(std::int64_t columns) {
  constexpr std::int64_t kColumns = 256;
  return static_cast<int>((columns + kColumns - 1) / kColumns);
}
template <class T, class Launch>
void launch_narrow_terms(const NarrowTerms<T>& a, const Launch& launch);
template <class T, class Launch>
void launch_softmax_statistics(const SoftmaxStatistics<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_softmax_gradient(const SoftmaxGradient<T>& a, std::int64_t rows, const Launch& launch);
template <class T, class Launch>
void launch_dequantize(const Dequantize<T>& a, const Launch& launch);
template <class T, class G, class Launch>
void launch_embedding_backward(const EmbeddingBackward<T, G>& a, const Launch& launch);
/// Four kernels per wave; backward has six, from the last wave to the first.
template <class T, class Launch>
void launch_delta_forward(const DeltaOperands<T>& a, std::span<const DeltaWave> waves, const Launch& launch);
template <class T, class Launch>
void launch_delta_backward(const DeltaOperands<T>& a, std::span<const DeltaWave> waves, const Launch& launch);

}  // namespace qft::ops::cuda

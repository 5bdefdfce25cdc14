// Our own accelerator kernels: a back end's part "ops". Kernels run asynchronously on the current stream and allocate nothing.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/embedding.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"

#include <span>

#include "../experts/experts_grouped_cuda.h"
#include "../gated_delta/gated_delta_cuda.h"
#include "../linear/matmul_blocked_cpu.h"
#include "../quantized/quantized_rows_cuda.h"
#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Each kernel returns false and does nothing if it does not support the data, such as fp64. Arguments are as in the operations
/// with the same names.
struct DeviceKernels {
  bool (*rms_norm_forward)(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                           NormWeight form);
  /// `partial`: buffer for partial sums, fp32 [norm_weight_grad_parts(rows), width]; undefined without gweight.
  bool (*rms_norm_backward)(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                            const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight,
                            const at::Tensor& partial, NormWeight form);
  bool (*rope)(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);
  bool (*swiglu_forward)(const at::Tensor& gate_up, const at::Tensor& act);
  bool (*swiglu_backward)(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act);
  bool (*dropout)(const DropoutBackward& tensors, const DropoutKey& key, const RowIdentity& rows, double p);
  bool (*add_embedding_noise)(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha);
  bool (*cross_entropy_rows)(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                             const at::Tensor& logprobs);
  bool (*softmax_statistics)(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                             const at::Tensor& statistics);
  bool (*softmax_gradient)(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                           const at::Tensor& grad_logprobs, const at::Tensor& lse);
  /// out = (or +=) a b for each term, which share no column.
  bool (*narrow_terms)(const at::Tensor& out, std::span<const blocked::NarrowTerm> terms, bool add);
  GroupedProduct grouped_product;  ///< allocates its result
  /// `bytes`: any layout except fp32; `from`: its rows.
  bool (*dequantize)(const at::Tensor& bytes, const QuantizedRows& from, const at::Tensor& out);
  bool (*embedding_backward)(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight,
                             const VocabularyPart& vocabulary);
  /// `work` provides the scratch memory.
  bool (*delta_forward)(const GatedDeltaTensors& in, const DeltaWork& work, const at::Tensor& out, const at::Tensor& states);
  bool (*delta_backward)(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states, const DeltaWork& work,
                         const GatedDeltaTensors& grads);
};

/// Returns the kernels for t's device; null on the CPU and on devices without kernels.
const DeviceKernels* device_kernels(const at::Tensor& t);

}  // namespace qft::ops

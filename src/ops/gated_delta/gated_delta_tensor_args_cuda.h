// Converts tensors to arguments of the gated delta rule's kernels.
#pragma once

#include "../common/tensor_args.h"
#include "gated_delta_cuda.h"

namespace qft::ops {

template <class T>
DeltaOperands<T> delta_args(const GatedDeltaTensors& in, const DeltaWork& work) {
  DeltaOperands<T> a{};
  if (work.waves.empty()) return a;
  a.q = head_rows<const T>(in.q), a.k = head_rows<const T>(in.k), a.v = head_rows<const T>(in.v);
  a.g = const_data<float>(in.g), a.beta = const_data<float>(in.beta);
  a.shape = {in.k.size(1), in.v.size(1), in.k.size(2), in.v.size(2)};
  std::int64_t floats = 0;
  a.scratch = DeltaScratch::at(data<float>(work.scratch), a.shape, work.max_chunks, work.backward, floats);
  const auto* table = const_data<std::int32_t>(work.table);
  a.chunks = reinterpret_cast<const DeltaChunk*>(table);
  a.chains = reinterpret_cast<const DeltaChain*>(table + work.chains_at);
  a.segments = reinterpret_cast<const DeltaChain*>(table + work.segments_at);
  return a;
}

template <class T>
DeltaOperands<T> delta_forward_args(const GatedDeltaTensors& in, const DeltaWork& work, const at::Tensor& out,
                                    const at::Tensor& states) {
  DeltaOperands<T> a = delta_args<T>(in, work);
  a.out = head_rows<T>(out);
  a.keep = data<float>(states);
  return a;
}

template <class T>
DeltaOperands<T> delta_backward_args(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                                     const DeltaWork& work, const GatedDeltaTensors& grads) {
  DeltaOperands<T> a = delta_args<T>(in, work);
  a.gout = head_rows<const T>(gout);
  a.gq = head_rows<T>(grads.q), a.gk = head_rows<T>(grads.k), a.gv = head_rows<T>(grads.v);
  a.gg = data<float>(grads.g), a.gbeta = data<float>(grads.beta);
  a.kept = const_data<float>(states);
  return a;
}

}  // namespace qft::ops

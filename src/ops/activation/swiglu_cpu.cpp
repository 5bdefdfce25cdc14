// SwiGLU.
#define HWY_TARGET_INCLUDE "ops/activation/swiglu_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

template <class T>
void swiglu_forward_rows(const SwigluForward<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T *gate = a.gate_up + r * 2 * a.width, *up = gate + a.width;
    T* out = a.act + r * a.width;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec g = load(gate + i, extent);
      store(hn::Mul(hn::Mul(g, sigmoid(g)), load(up + i, extent)), out + i, extent);
    });
  }
}

template <class T>
void swiglu_backward_rows(const SwigluBackward<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T *gate = a.gate_up + r * 2 * a.width, *up = gate + a.width, *gout = a.gact + r * a.width;
    T *ggate = a.ggate_up + r * 2 * a.width, *gup = ggate + a.width, *out = a.act == nullptr ? nullptr : a.act + r * a.width;
    for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
      const Vec g = load(gate + i, extent), u = load(up + i, extent), d = load(gout + i, extent);
      const Vec s = sigmoid(g), silu = hn::Mul(g, s);
      // silu'(g) = s + silu * (1 - s)
      const Vec slope = hn::MulAdd(silu, hn::Sub(splat(1.0F), s), s);
      if (out != nullptr) store(hn::Mul(silu, u), out + i, extent);
      store(hn::Mul(d, silu), gup + i, extent);
      store(hn::Mul(hn::Mul(d, u), slope), ggate + i, extent);
    });
  }
}

QFT_TARGET_KERNELS(SwigluKernels, swiglu_kernels, &swiglu_forward_rows<T>, &swiglu_backward_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(SwigluKernels, swiglu_kernels);
}  // namespace qft::ops::cpu
#endif

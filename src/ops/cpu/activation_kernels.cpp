// SwiGLU, rotary embedding and row sums.
// foreach_target.h compiles this file once per instruction set; it must come before the kernels' own headers.
// clang-format off
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "activation_kernels.cpp"
#include <hwy/foreach_target.h>
#include "../instruction_sets.h"
#include "qft/ops/cpu/kernels.h"
#include "vector-inl.h"
// clang-format on

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

template <class T>
void rope_rows(const Rope<T>& a, std::int64_t begin, std::int64_t end) {
  const Vec sign = splat(a.sign);
  for (std::int64_t t = begin; t < end; ++t) {
    const float *cos = a.cos + a.positions[t] * a.half, *sin = a.sin + a.positions[t] * a.half;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      T *first = a.x.row(t, h), *second = first + a.half;
      for_vectors(static_cast<std::size_t>(a.half), [&](std::size_t i, auto extent) HWY_ATTR {
        const Vec c = load(cos + i, extent), s = hn::Mul(sign, load(sin + i, extent));
        const Vec x = load(first + i, extent), y = load(second + i, extent);
        store(hn::NegMulAdd(y, s, hn::Mul(x, c)), first + i, extent);
        store(hn::MulAdd(x, s, hn::Mul(y, c)), second + i, extent);
      });
    }
  }
}

template <class T>
void add(T* to, const T* from, std::int64_t n) {
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t i, auto extent) HWY_ATTR {
    store(hn::Add(load(to + i, extent), load(from + i, extent)), to + i, extent);
  });
}

template <class T>
void add_to_float(float* to, const T* from, float scale, std::int64_t n) {
  const Vec factor = splat(scale);
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t i, auto extent) HWY_ATTR {
    store(hn::MulAdd(load(from + i, extent), factor, load(to + i, extent)), to + i, extent);
  });
}

ActivationKernels<float> activation_kernels_f32() {
  return {&swiglu_forward_rows<float>, &swiglu_backward_rows<float>, &rope_rows<float>, &add<float>, &add_to_float<float>};
}
ActivationKernels<Bf16> activation_kernels_bf16() {
  return {&swiglu_forward_rows<Bf16>, &swiglu_backward_rows<Bf16>, &rope_rows<Bf16>, &add<Bf16>, &add_to_float<Bf16>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(activation_kernels_f32);
HWY_EXPORT(activation_kernels_bf16);

template <>
ActivationKernels<float> activation_kernels() {
  instruction_sets_are_held();  // otherwise programs that only use these kernels would not read QFT_CPU_ISA
  return HWY_DYNAMIC_DISPATCH(activation_kernels_f32)();
}
template <>
ActivationKernels<Bf16> activation_kernels() {
  return HWY_DYNAMIC_DISPATCH(activation_kernels_bf16)();
}

}  // namespace qft::ops::cpu
#endif

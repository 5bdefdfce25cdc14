// The gated delta rule, forward: all or some rows of a chunk.
#define HWY_TARGET_INCLUDE "ops/gated_delta/delta_rule_cpu.cpp"
#include <cmath>

#include "delta_rule_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Writes the rows' keys into their columns of the chunk's keys.
void place_keys(const float* k, const DeltaRows& at, std::int64_t width, float* keys) {
  if (at.before == 0) return transpose_to(k, at.count, width, kChunk, keys);
  for (std::int64_t i = 0; i < at.count; ++i)
    for (std::int64_t d = 0; d < width; ++d) keys[d * kChunk + at.before + i] = k[i * width + d];
}

/// Solves one tile of rows of u = beta (residuals + system u). Contributions from earlier rows are already added.
template <int Rows>
HWY_INLINE void substitute(const float* system, std::int64_t known, const float* beta, std::int64_t beta_stride,
                           std::int64_t width, float* residuals, float* updates) {
  for_vectors(static_cast<std::size_t>(width), [&](std::size_t c, auto extent) HWY_ATTR {
    Vec u[Rows];
    for (int i = 0; i < Rows; ++i) {
      float* residual = residuals + i * width + static_cast<std::int64_t>(c);
      Vec r = load(residual, extent);
      for (int j = 0; j < i; ++j) r = hn::MulAdd(splat(system[i * kChunk + known + j]), u[j], r);
      store(r, residual, extent);
      u[i] = hn::Mul(splat(beta[i * beta_stride]), r);
      store(u[i], updates + (known + i) * width + static_cast<std::int64_t>(c), extent);
    }
  });
}

/// Forward substitution: computes the chunk's u, and u / beta, for rows from `first` on.
void solve(const float* system, std::int64_t first, std::int64_t count, const float* beta, std::int64_t beta_stride,
           std::int64_t width, float* residuals, float* updates) {
  for_tiles(count, [&](auto rows, std::int64_t row) HWY_ATTR {
    const std::int64_t known = first + row;
    const float* own = system + row * kChunk;
    float* right = residuals + row * width;
    if (known > 0) multiply({own, kChunk, 1, updates, width, right, width, rows(), width, known, 1.0F});
    substitute<rows()>(own, known, beta + row * beta_stride, beta_stride, width, right, updates);
  });
}

template <class T>
class Advance {
 public:
  Advance(const DeltaRule<T>& a, const DeltaRows& at, const DeltaMemory& memory, float* scratch)
      : a_(a), at_(at), memory_(memory), s_(a.key_dim, a.value_dim, scratch) {}

  void run() const {
    const std::int64_t width = a_.key_dim;
    normalise_rows(a_.k, at_, width, 1.0F, s_.k, s_.k_inverse);
    place_keys(s_.k, at_, width, memory_.keys);
    pairs(s_.k, s_.kk);
    if (a_.out.data != nullptr) {
      normalise_rows(a_.q, at_, width, query_scale(width), s_.q, s_.q_inverse);
      pairs(s_.q, s_.qk);
    }
    for (std::int64_t h = 0; h < a_.group; ++h) head(h);
  }

 private:
  void pairs(const float* rows, float* products) const {
    multiply({rows, a_.key_dim, 1, memory_.keys, kChunk, products, kChunk, at_.count, kChunk, a_.key_dim, 0.0F, Triangle::none,
              /*lower_result=*/true, at_.before});
  }

  void head(std::int64_t h) const {
    const std::int64_t value_head = at_.key_head * a_.group + h, n = at_.count, dk = a_.key_dim, dv = a_.value_dim;
    float *state = memory_.states + h * dk * dv, *updates = memory_.updates + h * kChunk * dv;
    float* residuals = memory_.residuals + h * kChunk * dv;
    double* sums = memory_.sums + h * kChunk;
    double sum = at_.before > 0 ? sums[at_.before - 1] : 0.0;
    for (std::int64_t i = 0; i < n; ++i)
      sums[at_.before + i] = sum += static_cast<double>(a_.g[(at_.token + i) * a_.value_heads + value_head]);
    decays(sums, at_.before, n, s_.decay);
    edge_decays(sums + at_.before, n, s_.from_start, nullptr);
    decayed(s_.kk, s_.decay, at_.before, n, false, -1.0F, s_.system);
    multiply({s_.k, dk, 1, state, dv, residuals, dv, n, dv, dk});
    for (std::int64_t i = 0; i < n; ++i) {
      const T* v = a_.v.row(at_.token + i, value_head);
      float* r = residuals + i * dv;
      const Vec decay = splat(s_.from_start[i]);
      for_vectors(static_cast<std::size_t>(dv), [&](std::size_t c, auto extent) HWY_ATTR {
        store(hn::NegMulAdd(decay, load(r + c, extent), load(v + c, extent)), r + c, extent);
      });
    }
    const float* beta = a_.beta + at_.token * a_.value_heads + value_head;
    solve(s_.system, at_.before, n, beta, a_.value_heads, dv, residuals, updates);
    if (a_.out.data != nullptr) write_out(value_head, state, updates);
    if (at_.before + n == kChunk) close_chunk(sums, updates, state);
  }

  void write_out(std::int64_t value_head, const float* state, const float* updates) const {
    const std::int64_t n = at_.count, dk = a_.key_dim, dv = a_.value_dim;
    multiply({s_.q, dk, 1, state, dv, s_.out, dv, n, dv, dk});
    scale_rows(s_.out, s_.from_start, 1.0F, n, dv, s_.out);
    decayed(s_.qk, s_.decay, at_.before, n, true, 1.0F, s_.weights);
    multiply({s_.weights, kChunk, 1, updates, dv, s_.out, dv, n, dv, at_.before + n, 1.0F, Triangle::lower, false, at_.before});
    for (std::int64_t i = 0; i < n; ++i) {
      const float* from = s_.out + i * dv;
      T* out = a_.out.row(at_.token + i, value_head);
      for_vectors(static_cast<std::size_t>(dv),
                  [&](std::size_t c, auto extent) HWY_ATTR { store(load(from + c, extent), out + c, extent); });
    }
  }

  /// Computes the next chunk's S.
  void close_chunk(const double* sums, const float* updates, float* state) const {
    const std::int64_t dk = a_.key_dim, dv = a_.value_dim;
    edge_decays(sums, kChunk, nullptr, s_.to_end);
    scale_rows(updates, s_.to_end, 1.0F, kChunk, dv, s_.updates);
    multiply(
        {memory_.keys, kChunk, 1, s_.updates, dv, state, dv, dk, dv, kChunk, static_cast<float>(std::exp(sums[kChunk - 1]))});
  }

  const DeltaRule<T>& a_;
  const DeltaRows& at_;
  const DeltaMemory& memory_;
  DeltaScratch s_;
};

template <class T>
void advance(const DeltaRule<T>& a, const DeltaRows& at, const DeltaMemory& memory, float* scratch) {
  Advance<T>(a, at, memory, scratch).run();
}

QFT_TARGET_KERNELS(DeltaAdvance, delta_advance, &advance<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(DeltaAdvance, delta_advance);
}  // namespace qft::ops::cpu
#endif

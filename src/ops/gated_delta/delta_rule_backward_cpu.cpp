// The gated delta rule, backward: gradients of a chunk. With r = u / beta, P_ij = D_ij (k_i k_j) and W_ij = D_ij (q_i k_j) from
// ops/gated_delta.h, and the prefix g for gradients:
//   gu_j = sum over i >= j of W_ij go_i + exp(G_last - G_j) k_j gS' - sum over i > j of P_ij gr_i,   gr_i = beta_i gu_i = gv_i
//   gW_ij = go_i u_j,   gP_ij = -gr_i u_j,   gbeta_i = gu_i r_i
#define HWY_TARGET_INCLUDE "ops/gated_delta/delta_rule_backward_cpu.cpp"

#include "delta_rule_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

/// Solves one tile of rows from the last row up: gr = beta gu. Contributions from rows after the tile are already added.
template <int Rows>
HWY_INLINE void substitute_back(const float* system, const float* beta, std::int64_t beta_stride, std::int64_t width,
                                float* gupdates, float* gresiduals) {
  for_vectors(static_cast<std::size_t>(width), [&](std::size_t c, auto extent) HWY_ATTR {
    Vec gr[Rows];
    for (int i = Rows - 1; i >= 0; --i) {
      const std::int64_t at = i * width + static_cast<std::int64_t>(c);
      Vec gu = load(gupdates + at, extent);
      for (int j = Rows - 1; j > i; --j) gu = hn::MulAdd(splat(system[j * kChunk + i]), gr[j], gu);
      store(gu, gupdates + at, extent);
      gr[i] = hn::Mul(splat(beta[i * beta_stride]), gu);
      store(gr[i], gresiduals + at, extent);
    }
  });
}

/// Back substitution: computes gu and gr for all rows.
void solve_back(const float* system, std::int64_t count, const float* beta, std::int64_t beta_stride, std::int64_t width,
                float* gupdates, float* gresiduals) {
  const auto tile = [&](auto rows, std::int64_t row) HWY_ATTR {
    const std::int64_t later = row + rows();
    const float* square = system + row * kChunk + row;
    if (later < count)
      multiply({system + later * kChunk + row, 1, kChunk, gresiduals + later * width, width, gupdates + row * width, width,
                rows(), width, count - later, 1.0F});
    substitute_back<rows()>(square, beta + row * beta_stride, beta_stride, width, gupdates + row * width,
                            gresiduals + row * width);
  };
  std::int64_t row = count;
  while (row % kTileRows != 0) tile(std::integral_constant<int, 1>{}, --row);
  while (row > 0) tile(std::integral_constant<int, kTileRows>{}, row -= kTileRows);
}

HWY_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  return sum_over(static_cast<std::size_t>(n), [&](std::size_t c, auto extent, Vec sum) HWY_ATTR {
    return hn::MulAdd(load(a + c, extent), load(b + c, extent), sum);
  });
}
HWY_INLINE void add_row(float* to, const float* from, std::int64_t n) {
  for_vectors(static_cast<std::size_t>(n), [&](std::size_t c, auto extent) HWY_ATTR {
    store(hn::Add(load(to + c, extent), load(from + c, extent)), to + c, extent);
  });
}

/// gqk = D gW and gkk = D gP, in place of go u and gr u; adds their contributions to the gradient of the sums G.
void gradients_of_pairs(const DeltaScratch& s, std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  alignas(64) float columns[kChunk] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    Vec total = splat(0.0F);
    for (std::int64_t j = 0; j <= i; j += lanes) {
      const std::int64_t at = i * kChunk + j;
      const auto seen = hn::FirstN(Floats(), static_cast<std::size_t>(std::min(lanes, i + 1 - j)));
      const auto before = hn::FirstN(Floats(), static_cast<std::size_t>(std::min(lanes, i - j)));
      const Vec decay = load(s.decay + at);
      const Vec gqk = hn::IfThenElseZero(seen, hn::Mul(decay, load(s.gqk + at)));
      const Vec gkk = hn::IfThenElseZero(before, hn::Neg(hn::Mul(decay, load(s.gkk + at))));
      store(gqk, s.gqk + at);
      store(gkk, s.gkk + at);
      const Vec pairs = hn::IfThenElseZero(seen, hn::MulAdd(gkk, load(s.kk + at), hn::Mul(gqk, load(s.qk + at))));
      total = hn::Add(total, pairs);
      store(hn::Add(load(columns + j), pairs), columns + j);
    }
    const std::int64_t filled = (i / lanes + 1) * lanes;
    std::fill(s.gqk + i * kChunk + filled, s.gqk + (i + 1) * kChunk, 0.0F);
    std::fill(s.gkk + i * kChunk + filled, s.gkk + (i + 1) * kChunk, 0.0F);
    s.gsums[i] += sum_of(total);
  }
  for (std::int64_t j = 0; j < count; ++j) s.gsums[j] -= columns[j];
}

/// Writes the gradient through normalise_rows(), which produced the rows `unit`.
template <class T>
void norm_backward(const DeltaRows& at, std::int64_t width, float scale, const float* unit, const float* inverse,
                   const float* gunit, const HeadRows<T>& gx) {
  for (std::int64_t i = 0; i < at.count; ++i) {
    const float *u = unit + i * width, *g = gunit + i * width;
    T* to = gx.row(at.token + i, at.key_head);
    const Vec factor = splat(inverse[i] * scale), share = splat(dot(u, g, width) * inverse[i] / scale);
    for_vectors(static_cast<std::size_t>(width), [&](std::size_t c, auto extent) HWY_ATTR {
      store(hn::NegMulAdd(load(u + c, extent), share, hn::Mul(load(g + c, extent), factor)), to + c, extent);
    });
  }
}

template <class T>
class Backward {
 public:
  Backward(const DeltaRule<T>& a, const DeltaRows& at, const DeltaMemory& memory, float* gstates, float* scratch)
      : a_(a),
        at_(at),
        memory_(memory),
        gstates_(gstates),
        s_(a.key_dim, a.value_dim, scratch),
        n_(at.count),
        dk_(a.key_dim),
        dv_(a.value_dim) {}

  void run() const {
    const float scale = query_scale(dk_);
    normalise_rows(a_.k, at_, dk_, 1.0F, s_.k, s_.k_inverse);
    normalise_rows(a_.q, at_, dk_, scale, s_.q, s_.q_inverse);
    transpose_to(s_.k, n_, dk_, kChunk, s_.keys);
    pairs(s_.k, dk_, s_.keys, s_.kk);
    pairs(s_.q, dk_, s_.keys, s_.qk);
    std::fill_n(s_.gq, n_ * dk_, 0.0F);
    std::fill_n(s_.gk, n_ * dk_, 0.0F);
    for (std::int64_t h = 0; h < a_.group; ++h) head(h);
    norm_backward(at_, dk_, scale, s_.q, s_.q_inverse, s_.gq, a_.gq);
    norm_backward(at_, dk_, 1.0F, s_.k, s_.k_inverse, s_.gk, a_.gk);
  }

 private:
  /// products[i][j] = a_i b_j for j <= i; b [width, kChunk].
  void pairs(const float* a, std::int64_t width, const float* b, float* products) const {
    multiply({a, width, 1, b, kChunk, products, kChunk, n_, kChunk, width, 0.0F, Triangle::none, /*lower_result=*/true});
  }

  void head(std::int64_t h) const {
    const std::int64_t value_head = at_.key_head * a_.group + h;
    const double* sums = memory_.sums + h * kChunk;
    const float *state = memory_.states + h * dk_ * dv_, *residuals = memory_.residuals + h * kChunk * dv_;
    float* gstate = gstates_ + h * dk_ * dv_;
    decays(sums, 0, n_, s_.decay);
    edge_decays(sums, n_, s_.from_start, s_.to_end);
    std::fill_n(s_.gsums, n_, 0.0F);
    load_rows(value_head, residuals);
    updates_gradient(value_head, gstate);
    write_gradients(value_head, residuals);

    transpose_to(s_.updates, n_, dv_, kChunk, s_.transposed_updates);
    pairs(s_.gout, dv_, s_.transposed_updates, s_.gqk);
    pairs(s_.gresiduals, dv_, s_.transposed_updates, s_.gkk);
    gradients_of_pairs(s_, n_);
    through_states(state, gstate);
    const auto add = [&](const float* weights, Triangle side, const float* rows, float* to) HWY_ATTR {
      const bool lower = side == Triangle::lower;
      multiply({weights, lower ? kChunk : 1, lower ? 1 : kChunk, rows, dk_, to, dk_, n_, dk_, n_, 1.0F, side});
    };
    add(s_.gqk, Triangle::lower, s_.k, s_.gq);
    add(s_.gqk, Triangle::upper, s_.q, s_.gk);
    add(s_.gkk, Triangle::lower, s_.k, s_.gk);
    add(s_.gkk, Triangle::upper, s_.k, s_.gk);
    double sum = 0.0;
    for (std::int64_t i = n_ - 1; i >= 0; --i) {
      sum += static_cast<double>(s_.gsums[i]);
      a_.gg[(at_.token + i) * a_.value_heads + value_head] = static_cast<float>(sum);
    }
  }

  float beta(std::int64_t i, std::int64_t value_head) const { return a_.beta[(at_.token + i) * a_.value_heads + value_head]; }

  /// Loads go and computes u.
  void load_rows(std::int64_t value_head, const float* residuals) const {
    for (std::int64_t i = 0; i < n_; ++i) {
      const T* go = a_.gout.row(at_.token + i, value_head);
      const Vec strength = splat(beta(i, value_head));
      for_vectors(static_cast<std::size_t>(dv_), [&](std::size_t c, auto extent) HWY_ATTR {
        const std::int64_t at = i * dv_ + static_cast<std::int64_t>(c);
        store(load(go + c, extent), s_.gout + at, extent);
        store(hn::Mul(strength, load(residuals + at, extent)), s_.updates + at, extent);
      });
    }
  }

  /// Computes gu and gr.
  void updates_gradient(std::int64_t value_head, const float* gstate) const {
    decayed(s_.kk, s_.decay, 0, n_, false, -1.0F, s_.system);
    decayed(s_.qk, s_.decay, 0, n_, true, 1.0F, s_.weights);
    multiply({s_.k, dk_, 1, gstate, dv_, s_.gupdates, dv_, n_, dv_, dk_});
    scale_rows(s_.gupdates, s_.to_end, 1.0F, n_, dv_, s_.gupdates);
    multiply({s_.weights, 1, kChunk, s_.gout, dv_, s_.gupdates, dv_, n_, dv_, n_, 1.0F, Triangle::upper});
    solve_back(s_.system, n_, a_.beta + at_.token * a_.value_heads + value_head, a_.value_heads, dv_, s_.gupdates, s_.gresiduals);
  }

  void write_gradients(std::int64_t value_head, const float* residuals) const {
    for (std::int64_t i = 0; i < n_; ++i) {
      a_.gbeta[(at_.token + i) * a_.value_heads + value_head] = dot(s_.gupdates + i * dv_, residuals + i * dv_, dv_);
      T* gv = a_.gv.row(at_.token + i, value_head);
      const float* from = s_.gresiduals + i * dv_;
      for_vectors(static_cast<std::size_t>(dv_),
                  [&](std::size_t c, auto extent) HWY_ATTR { store(load(from + c, extent), gv + c, extent); });
    }
  }

  /// Backpropagates through q S, k S and the next S into q, k and G, then computes the gradient of the states. Scales go, gr and
  /// u in place.
  void through_states(const float* state, float* gstate) const {
    transpose_to(state, dk_, dv_, dk_, s_.transposed_state);
    transpose_to(gstate, dk_, dv_, dk_, s_.transposed_gstate);
    scale_rows(s_.gout, s_.from_start, 1.0F, n_, dv_, s_.gout);
    scale_rows(s_.gresiduals, s_.from_start, -1.0F, n_, dv_, s_.gresiduals);
    scale_rows(s_.updates, s_.to_end, 1.0F, n_, dv_, s_.updates);
    from_state(s_.gout, s_.transposed_state, s_.q, s_.gq);
    for (std::int64_t i = 0; i < n_; ++i) s_.gsums[i] += s_.dots[i];
    from_state(s_.gresiduals, s_.transposed_state, s_.k, s_.gk);
    for (std::int64_t i = 0; i < n_; ++i) s_.gsums[i] += s_.dots[i];
    from_state(s_.updates, s_.transposed_gstate, s_.k, s_.gk);
    const float whole = s_.from_start[n_ - 1];  // the chunk's decay
    float last = whole * dot(gstate, state, dk_ * dv_);
    for (std::int64_t i = 0; i < n_; ++i) {
      s_.gsums[i] -= s_.dots[i];
      last += s_.dots[i];
    }
    s_.gsums[n_ - 1] += last;
    multiply({s_.q, 1, dk_, s_.gout, dv_, gstate, dv_, dk_, dv_, n_, whole});
    multiply({s_.k, 1, dk_, s_.gresiduals, dv_, gstate, dv_, dk_, dv_, n_, 1.0F});
  }

  /// Adds the gradient through a product of rows `unit` with a state, and stores its dot products with these rows.
  void from_state(const float* rows, const float* transposed, const float* unit, float* gunit) const {
    multiply({rows, dv_, 1, transposed, dk_, s_.from_state, dk_, n_, dk_, dv_});
    for (std::int64_t i = 0; i < n_; ++i) {
      s_.dots[i] = dot(unit + i * dk_, s_.from_state + i * dk_, dk_);
      add_row(gunit + i * dk_, s_.from_state + i * dk_, dk_);
    }
  }

  const DeltaRule<T>& a_;
  const DeltaRows& at_;
  const DeltaMemory& memory_;
  float* gstates_;
  DeltaScratch s_;
  std::int64_t n_, dk_, dv_;
};

template <class T>
void backward(const DeltaRule<T>& a, const DeltaRows& at, const DeltaMemory& memory, float* gstates, float* scratch) {
  Backward<T>(a, at, memory, gstates, scratch).run();
}

QFT_TARGET_KERNELS(DeltaBackward, delta_backward, &backward<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(DeltaBackward, delta_backward);
}  // namespace qft::ops::cpu
#endif

// The operations around the gated delta rule: short convolution, gates, gated norm.
#include "qft/ops/delta_gates.h"
#include "qft/ops/norm.h"
#include "qft/ops/short_convolution.h"

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

namespace qft::ops {
namespace {

using namespace testing;

const std::vector<at::ScalarType> kDeltaNetDtypes = {at::kFloat, at::kBFloat16};
const std::vector<std::int32_t> kBounds = {0, 1, 3, 3, 70, 83};

PackedSequences packed_bounds(const std::vector<std::int32_t>& bounds) {
  return PackedSequences::build(bounds, at::kCPU);
}

at::Tensor silu_of(const at::Tensor& z) {
  return z * at::sigmoid(z);
}

/// inputs: x, weight
at::Tensor convolution(const std::vector<at::Tensor>& in, const std::vector<std::int32_t>& bounds) {
  std::vector<at::Tensor> parts;
  const std::int64_t taps = in[1].size(1);
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    const std::int64_t rows = bounds[s + 1] - bounds[s];
    const at::Tensor padded = at::cat({at::zeros({taps - 1, in[0].size(1)}, in[0].options()), in[0].narrow(0, bounds[s], rows)});
    at::Tensor z = padded.narrow(0, 0, rows) * in[1].select(1, 0);
    for (std::int64_t i = 1; i < taps; ++i) z = z + padded.narrow(0, i, rows) * in[1].select(1, i);
    parts.push_back(silu_of(z));
  }
  return at::cat(parts);
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const std::vector<std::int32_t>& bounds) {
  const at::Tensor y = empty(x.sizes(), x.scalar_type());
  short_convolution_forward(x, weight, packed_bounds(bounds), y, workspace());
  return y;
}

TEST(ShortConvolution, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& [channels, taps] : std::vector<std::pair<int, int>>{{200, 4}, {7, 2}, {64, 1}, {131, 8}, {600, 4}}) {
      const at::Tensor rows = randn({83, channels + 3}, dtype, 1), x = rows.narrow(1, 2, channels);
      const at::Tensor w = randn({channels, taps}, dtype, 2), gy = randn({83, channels}, dtype, 3);
      const Oracle oracle = differentiate([](const auto& in) { return convolution(in, kBounds); }, {x, w}, gy);
      expect_close(convolve(x, w, kBounds), oracle.value, tolerance(dtype), "y");
      const at::Tensor gx = gy.clone(), gw = randn(w.sizes(), statistics_dtype(dtype), 4), before = gw.clone();
      short_convolution_backward(gx, x, w, packed_bounds(kBounds), gx, gw, workspace());
      expect_close(gx, oracle.grads[0], tolerance(dtype), "gx");
      expect_close(gw, before + oracle.grads[1], tolerance(dtype), "gw");
      const at::Tensor frozen = empty(gy.sizes(), dtype);
      short_convolution_backward(gy, x, w, packed_bounds(kBounds), frozen, {}, workspace());
      EXPECT_TRUE(frozen.equal(gx));
    }
}

TEST(ShortConvolution, SequencesDoNotSeeEachOther) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({83, 40}, dtype, 1), w = randn({40, 4}, dtype, 2), together = convolve(x, w, kBounds);
    for (std::size_t s = 0; s + 1 < kBounds.size(); ++s) {
      const std::int32_t rows = kBounds[s + 1] - kBounds[s];
      EXPECT_TRUE(convolve(x.narrow(0, kBounds[s], rows), w, {0, rows}).equal(together.narrow(0, kBounds[s], rows)));
    }
    EXPECT_FALSE(convolve(x, w, {0, 1, 3, 83}).equal(together)) << "a wrong boundary must change the result";
  }
}

TEST(ShortConvolution, PiecesHaveTheBitsOfTheWhole) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({24, 40}, dtype, 1), w = randn({40, 4}, dtype, 2), whole = convolve(x, w, {0, 12, 24});
    for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{12}, {1, 1, 2, 8}, {5, 1, 6}, {2, 2, 8}}) {
      const at::Tensor states[] = {zeros({3, 40}, dtype), zeros({3, 40}, dtype)};
      std::int64_t at = 0;
      for (const std::int64_t n : pieces) {
        const at::Tensor both = at::cat({x.narrow(0, at, n), x.narrow(0, 12 + at, n)}), y = empty(both.sizes(), dtype);
        const std::vector<ConvolvedSequence> sequences = {{n, states[0]}, {n, states[1]}};
        short_convolution_decode(both, w, sequences, y, workspace());
        EXPECT_TRUE(y.equal(at::cat({whole.narrow(0, at, n), whole.narrow(0, 12 + at, n)}))) << "rows from " << at;
        at += n;
      }
      EXPECT_TRUE(states[1].equal(x.narrow(0, 21, 3)));
    }
  }
}

/// inputs: a, b, a_log, dt_bias; returns g and beta side by side.
at::Tensor gates(const std::vector<at::Tensor>& in) {
  return at::cat({-at::exp(in[2]) * at::softplus(in[0] + in[3]), at::sigmoid(in[1])}, 1);
}

TEST(DeltaGates, AgreeWithAutograd) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::ScalarType wide = statistics_dtype(dtype);
    const at::Tensor rows = randn({37, 13}, dtype, 1, 3.0), gout = randn({37, 12}, wide, 2);
    const DeltaGateInputs in{rows.narrow(1, 0, 6), rows.narrow(1, 6, 6), randn({6}, dtype, 3), randn({6}, dtype, 4)};
    rows[0][0].fill_(50.0), rows[1][0].fill_(-50.0);
    const Oracle oracle = differentiate(gates, {in.a, in.b, in.a_log, in.dt_bias}, gout);
    const at::Tensor g = empty({37, 6}, wide), beta = empty({37, 6}, wide), grads = empty(rows.sizes(), dtype);
    delta_gates_forward(in, g, beta);
    expect_close(at::cat({g, beta}, 1), oracle.value, tolerance(wide), "gates");
    const DeltaGateInputs out{grads.narrow(1, 0, 6), grads.narrow(1, 6, 6), zeros({6}, wide), zeros({6}, wide)};
    delta_gates_backward(gout.narrow(1, 0, 6).contiguous(), gout.narrow(1, 6, 6).contiguous(), in, out);
    expect_close(out.a, oracle.grads[0], tolerance(dtype), "ga");
    expect_close(out.b, oracle.grads[1], tolerance(dtype), "gb");
    expect_close(out.a_log, oracle.grads[2], tolerance(wide), "ga_log");
    expect_close(out.dt_bias, oracle.grads[3], tolerance(wide), "gdt_bias");
    EXPECT_TRUE(grads.narrow(1, 12, 1).isnan().all().item<bool>());
  }
}

TEST(DeltaGates, MatchSingleRowsBitwise) {
  for (const at::ScalarType dtype : kDeltaNetDtypes) {
    const DeltaGateInputs in{randn({37, 6}, dtype, 1), randn({37, 6}, dtype, 2), randn({6}, dtype, 3), randn({6}, dtype, 4)};
    const at::Tensor g = empty({37, 6}, at::kFloat), beta = empty({37, 6}, at::kFloat);
    delta_gates_forward(in, g, beta);
    for (std::int64_t t = 0; t < 37; ++t) {
      const at::Tensor g1 = empty({1, 6}, at::kFloat), beta1 = empty({1, 6}, at::kFloat);
      delta_gates_forward({in.a.narrow(0, t, 1), in.b.narrow(0, t, 1), in.a_log, in.dt_bias}, g1, beta1);
      EXPECT_TRUE(g1.equal(g.narrow(0, t, 1)) && beta1.equal(beta.narrow(0, t, 1))) << t;
    }
  }
}

/// inputs: x, z, weight
at::Tensor gated_norm(const std::vector<at::Tensor>& in) {
  return in[0] * at::rsqrt(in[0].square().mean(-1, true) + 1e-6) * in[2] * silu_of(in[1]);
}

TEST(GatedNorm, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const std::int64_t width : {40, 128, 5}) {
      const at::Tensor rows = randn({9, 7 * width}, dtype, 1), gy = randn({9, 3, width}, dtype, 2);
      const at::Tensor x = heads_view(rows, 0, 3, width), z = heads_view(rows, 3, 3, width), w = randn({width}, dtype, 3);
      const Oracle oracle = differentiate(gated_norm, {x, z, w}, gy);
      const at::Tensor y = empty(gy.sizes(), dtype), rstd = empty({9, 3}, statistics_dtype(dtype));
      gated_norm_forward(x, z, w, 1e-6, y, rstd);
      expect_close(y, oracle.value, tolerance(dtype), "y");
      const at::Tensor gx = gy.clone(), gz = z.clone(), gw = randn({width}, statistics_dtype(dtype), 5), before = gw.clone();
      gated_norm_backward({.gy = gx, .x = x, .z = gz, .weight = w, .rstd = rstd, .gx = gx, .gz = gz, .gweight = gw}, workspace());
      expect_close(gx, oracle.grads[0], tolerance(dtype), "gx");
      expect_close(gz, oracle.grads[1], tolerance(dtype), "gz");
      expect_close(gw, before + oracle.grads[2], tolerance(dtype), "gw");
    }
}

/// Plain ATen calls process the rows in chunks.
TEST(GatedNorm, MatchesSingleRowsInChunks) {
  constexpr std::int64_t kRows = 5, kWidth = 1 << 20;  // four per chunk
  const at::Tensor w = randn({kWidth}, at::kDouble, 1), x = randn({kRows, 1, 1}, at::kDouble, 2) * w,
                   z = randn({kRows, 1, 1}, at::kDouble, 3) * w, gy = x + z;
  const auto both = [&](std::int64_t first, std::int64_t rows) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(0, first, rows); };
    const at::Tensor y = at::empty_like(part(x)), gx = at::empty_like(y), gz = at::empty_like(y),
                     gw = zeros({kWidth}, at::kDouble), rstd = empty({rows, 1}, at::kDouble);
    gated_norm_forward(part(x), part(z), w, 1e-6, y, rstd);
    gated_norm_backward(
        {.gy = part(gy), .x = part(x), .z = part(z), .weight = w, .rstd = rstd, .gx = gx, .gz = gz, .gweight = gw}, workspace());
    return std::vector<at::Tensor>{y, gx, gz, gw};
  };
  const auto all = both(0, kRows);
  const auto most = both(0, kRows - 1), last = both(kRows - 1, 1);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(all[i], at::cat({most[i], last[i]}), 1e-12, 1e-12)) << i;
  EXPECT_TRUE(at::allclose(all[3], most[3] + last[3], 1e-12, 1e-12));
}

TEST(GatedNorm, ZeroRowsStayFinite) {
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = zeros({2, 3, 24}, dtype), w = randn({24}, dtype, 1), y = empty(x.sizes(), dtype);
    const at::Tensor rstd = empty({2, 3}, statistics_dtype(dtype)), gx = empty(x.sizes(), dtype), gz = empty(x.sizes(), dtype);
    gated_norm_forward(x, x, w, 1e-6, y, rstd);
    gated_norm_backward({.gy = randn(x.sizes(), dtype, 2), .x = x, .z = x, .weight = w, .rstd = rstd, .gx = gx, .gz = gz},
                        workspace());
    EXPECT_EQ(y.abs().sum().item<double>() + gz.abs().sum().item<double>() + gx.abs().sum().item<double>(), 0.0);
  }
}

}  // namespace
}  // namespace qft::ops

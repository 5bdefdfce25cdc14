#include "qft/ops/norm.h"

#include "qft/ops/attention.h"
#include "qft/ops/generic.h"

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/rsqrt.h>

namespace qft::ops {
namespace {

using namespace testing;

constexpr double kEps = 1e-5;

at::Tensor rms_norm(const std::vector<at::Tensor>& in) {
  return in[0] * at::rsqrt(in[0].square().mean(-1, true) + kEps) * in[1];
}

at::Tensor zero_centred(const std::vector<at::Tensor>& in) {
  return rms_norm({in[0], in[1] + 1});
}

void compare_with_autograd(at::IntArrayRef shape, at::ScalarType dtype, bool with_residual, NormWeight form) {
  const at::Tensor x = randn(shape, dtype, 1, 2.0), w = randn({shape.back()}, dtype, 2), gy = randn(shape, dtype, 3);
  const at::Tensor residual = with_residual ? randn(shape, dtype, 4) : at::Tensor();
  const Oracle oracle = differentiate(form == NormWeight::zero_centred ? zero_centred : rms_norm, {x, w}, gy);
  const at::Tensor y = empty(shape, dtype), rstd = empty(shape.slice(0, shape.size() - 1), statistics_dtype(dtype));
  rms_norm_forward(x, w, kEps, y, rstd, form);
  expect_close(y, oracle.value, tolerance(dtype), "y");

  const at::Tensor gx = empty(shape, dtype), gw = randn(w.sizes(), statistics_dtype(dtype), 5), before = gw.clone();
  rms_norm_backward(
      {.gy = gy, .x = x, .weight = w, .rstd = rstd, .residual_grad = residual, .gx = gx, .gweight = gw, .form = form},
      workspace());
  expect_close(gx, with_residual ? oracle.grads[0] + residual : oracle.grads[0], tolerance(dtype), "gx");
  expect_close(gw, before + oracle.grads[1], tolerance(dtype), "gw");
}

TEST(RmsNorm, AgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{{1, 576}, {7, 64}, {33, 100}, {5, 6}, {3, 17}})
      for (const bool residual : {false, true})
        for (const NormWeight form : {NormWeight::plain, NormWeight::zero_centred, NormWeight::rounded_last})
          compare_with_autograd({rows, width}, dtype, residual, form);
}

TEST(RmsNorm, NormalisesHeadsOfFusedRows) {
  constexpr std::int64_t tokens = 6, heads = 3, head_dim = 24;
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor rows = randn({tokens, 10 * head_dim}, dtype, 1), original = rows.clone();
    const at::Tensor w = randn({head_dim}, dtype, 2), gy = randn({tokens, heads, head_dim}, dtype, 3);
    const at::Tensor x = heads_view(rows, 2, heads, head_dim);
    const Oracle oracle = differentiate(rms_norm, {x, w}, gy);
    const at::Tensor rstd = empty({tokens, heads}, statistics_dtype(dtype)), gw = zeros({head_dim}, dtype);
    const at::Tensor grads = randn(rows.sizes(), dtype, 4), grads_before = grads.clone();
    const at::Tensor gx = heads_view(grads, 2, heads, head_dim);
    gx.copy_(gy);
    rms_norm_forward(x, w, kEps, x, rstd);  // in place
    expect_close(x, oracle.value, tolerance(dtype), "y");
    EXPECT_TRUE(rows.narrow(1, 0, 2 * head_dim).equal(original.narrow(1, 0, 2 * head_dim)));
    EXPECT_TRUE(rows.narrow(1, 5 * head_dim, 5 * head_dim).equal(original.narrow(1, 5 * head_dim, 5 * head_dim)));

    rms_norm_backward(
        {.gy = gx, .x = heads_view(original, 2, heads, head_dim), .weight = w, .rstd = rstd, .gx = gx, .gweight = gw},
        workspace());
    expect_close(gx, oracle.grads[0], tolerance(dtype), "gx");
    expect_close(gw, oracle.grads[1], tolerance(dtype), "gw");
    EXPECT_TRUE(heads_view(grads, 0, 2, head_dim).equal(heads_view(grads_before, 0, 2, head_dim)));
  }
}

TEST(RmsNorm, RoundsWhereTransformersDoes) {
  const at::Tensor x = randn({19, 576}, at::kBFloat16, 1), w = randn({576}, at::kBFloat16, 2);
  const at::Tensor wide = x.to(at::kFloat), normed = wide * at::rsqrt(wide.square().mean(-1, true) + kEps);
  for (const NormWeight form : {NormWeight::plain, NormWeight::rounded_last}) {
    const at::Tensor y = empty(x.sizes(), at::kBFloat16), rstd = empty({19}, at::kFloat);
    rms_norm_forward(x, w, kEps, y, rstd, form);
    const at::Tensor first = w * normed.to(at::kBFloat16), last = (w.to(at::kFloat) * normed).to(at::kBFloat16);
    // Only a different order of summation under the root may occasionally flip a rounding.
    const bool plain = form == NormWeight::plain;
    EXPECT_LE(y.ne(plain ? first : last).sum().item<std::int64_t>(), y.numel() / 200);
    EXPECT_GT(y.ne(plain ? last : first).sum().item<std::int64_t>(), y.numel() / 20);
  }
}

TEST(RmsNorm, FrozenWeightNeedsNoGradient) {
  const at::Tensor x = randn({4, 32}, at::kFloat, 1), w = randn({32}, at::kFloat, 2), rstd = empty({4}, at::kFloat);
  const at::Tensor y = empty(x.sizes(), at::kFloat), gx = randn(x.sizes(), at::kFloat, 3);
  const Oracle oracle = differentiate(rms_norm, {x, w}, gx);
  rms_norm_forward(x, w, kEps, y, rstd);
  rms_norm_backward({.gy = gx, .x = x, .weight = w, .rstd = rstd, .gx = gx}, workspace());
  expect_close(gx, oracle.grads[0], tolerance(at::kFloat), "gx");
}

}  // namespace
}  // namespace qft::ops

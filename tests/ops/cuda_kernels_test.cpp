// Compares the CUDA kernels with the generic operations: with the CUDA stand-in on any machine, and through the operations on a
// GPU.
// clang-format off: must precede every kernel, because it provides their CUDA
#include "support/simt.h"
// clang-format on

#include "qft/device/device.h"
#include "qft/ops/activation.h"
#include "qft/ops/attention.h"
#include "qft/ops/embedding.h"
#include "qft/ops/generic.h"
#include "qft/ops/head.h"
#include "qft/ops/norm.h"

#include <cmath>
#include <limits>

#include "kernels_support.h"
#include "ops/activation/swiglu_cuda.cuh"
#include "ops/common/device_kernels.h"
#include "ops/common/tensor_args.h"
#include "ops/dropout/dropout_cuda.cuh"
#include "ops/embedding/embedding_cuda.cuh"
#include "ops/embedding/embedding_noise_cuda.cuh"
#include "ops/embedding/embedding_noise_tensor_args.h"
#include "ops/head/cross_entropy_cuda.cuh"
#include "ops/linear/narrow_terms_cuda.cuh"
#include "ops/linear/narrow_terms_tensor_args.h"
#include "ops/norm/norm_cuda.cuh"
#include "ops/quantized/quantized_cuda.cuh"
#include "ops/rope/rope_cuda.cuh"
#include "ops_support.h"
#include "quantized_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>

namespace qft::ops {
namespace {

using namespace testing;

class CudaKernels : public KernelTest {
 protected:
  at::Tensor here(const at::Tensor& t) const { return t.defined() ? t.to(device(), false, /*copy=*/true) : t; }

  NormWeight form_ = NormWeight::plain;
  void norm_forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& y, const at::Tensor& rstd) {
    if (on_gpu()) return rms_norm_forward(x, w, 1e-5, y, rstd, form_);
    with_type(x.scalar_type(), [&]<class T>() {
      cuda::launch_rms_norm_forward(norm_forward_args<T>(x, w, 1e-5, y, rstd, form_), rstd.numel(), simt::Launch());
    });
  }
  void norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd,
                     const at::Tensor& residual, const at::Tensor& gx, const at::Tensor& gw) {
    if (on_gpu())
      return rms_norm_backward(
          {.gy = gy, .x = x, .weight = w, .rstd = rstd, .residual_grad = residual, .gx = gx, .gweight = gw, .form = form_},
          workspace_);
    with_type(x.scalar_type(), [&]<class T>() {
      const auto args = norm_backward_args<T>(gy, x, w, rstd, residual, gx, form_);
      const at::Tensor partial = empty({norm_weight_grad_parts(rstd.numel()), x.size(-1)}, at::kFloat);
      if (gw.defined())
        cuda::launch_norm_weight_grad(args, rstd.numel(), partial.data_ptr<float>(), gw.data_ptr<float>(), simt::Launch());
      cuda::launch_rms_norm_backward(args, rstd.numel(), simt::Launch());
    });
  }
  /// x and gy: views of a buffer's rows, or separate tensors.
  void compare_norm(const at::Tensor& x, const at::Tensor& gy, std::uint64_t seed);

  void rotate(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
    if (on_gpu()) return rope(x, positions, table, direction);
    with_type(x.scalar_type(),
              [&]<class T>() { cuda::launch_rope(rope_args<T>(x, positions, table, direction), x.size(0), simt::Launch()); });
  }
  void swiglu(const at::Tensor& gate_up, const at::Tensor& act) {
    if (on_gpu()) return swiglu_forward(gate_up, act);
    with_type(act.scalar_type(),
              [&]<class T>() { cuda::launch_swiglu_forward(swiglu_forward_args<T>(gate_up, act), act.size(0), simt::Launch()); });
  }
  void swiglu_back(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& grad, const at::Tensor& act) {
    if (on_gpu()) return swiglu_backward(gate_up, gact, grad, act);
    with_type(gact.scalar_type(), [&]<class T>() {
      cuda::launch_swiglu_backward(swiglu_backward_args<T>(gate_up, gact, grad, act), gact.size(0), simt::Launch());
    });
  }
  void drop(const DropoutBackward& t, const RowIdentity& rows, double p) {
    if (on_gpu()) return dropout_backward(t, kKey, rows, p);
    with_type(t.any().scalar_type(), [&]<class T>() {
      cuda::launch_dropout(dropout_args<T>(t, kKey, rows, p), rows.positions.size(0), simt::Launch());
    });
  }
  void add_noise(const at::Tensor& x, const NoisyRows& rows, double alpha) {
    if (on_gpu()) return add_embedding_noise(x, kKey, rows, alpha);
    with_type(x.scalar_type(), [&]<class T>() {
      cuda::launch_embedding_noise(embedding_noise_args<T>(x, kKey, rows, alpha), rows.identity.positions.size(0),
                                   simt::Launch());
    });
  }
  /// Runs through the head on a GPU; its product with the identity matrix reproduces the logits.
  void cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad, const at::Tensor& logprobs);
  void decode(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
    if (on_gpu()) return dequantize(bytes, layout, out);
    with_type(out.scalar_type(), [&]<class T>() {
      cuda::launch_dequantize(Dequantize<T>{QuantizedRows::of(layout), const_data<std::uint8_t>(bytes), data<T>(out)},
                              simt::Launch());
    });
  }
  void compare_decoded(const at::Tensor& bytes, const QuantizedLayout& layout) {
    for (const at::ScalarType type : kKernelDtypes) {
      const at::Tensor expected = empty({layout.numel()}, type), out = here(expected.fill_(-7));
      dequantize_generic(bytes, layout, expected);
      decode(here(bytes), layout, out);
      EXPECT_TRUE(out.to(at::kCPU).equal(expected))
          << describe(layout.kind) << ", " << layout.rows << " x " << layout.columns << " " << c10::toString(type);
    }
  }
  void softmax_of_part(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& part, const at::Tensor& out) {
    if (on_gpu()) {
      EXPECT_TRUE(device_kernels(logits)->softmax_statistics(logits, targets, part, out));
      return;
    }
    with_type(logits.scalar_type(), [&]<class T>() {
      cuda::launch_softmax_statistics(softmax_statistics_args<T>(logits, targets, part, out), logits.size(0), simt::Launch());
    });
  }
  void gradient_of_part(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& part, const at::Tensor& grad,
                        const at::Tensor& lse) {
    if (on_gpu()) {
      EXPECT_TRUE(device_kernels(logits)->softmax_gradient(logits, targets, part, grad, lse));
      return;
    }
    with_type(logits.scalar_type(), [&]<class T>() {
      cuda::launch_softmax_gradient(softmax_gradient_args<T>(logits, targets, part, grad, lse), logits.size(0), simt::Launch());
    });
  }
  void embed_back(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight, const VocabularyPart& part = {}) {
    if (on_gpu()) return embedding_backward(tokens, gy, gweight, part);
    with_type(gy.scalar_type(), [&]<class T>() {
      if (gweight.scalar_type() == at::kFloat)
        cuda::launch_embedding_backward(embedding_backward_args<T, float>(tokens, gy, gweight, part), simt::Launch());
      else
        cuda::launch_embedding_backward(embedding_backward_args<T, T>(tokens, gy, gweight, part), simt::Launch());
    });
  }
  static constexpr DropoutKey kKey{42, 9, 5, 2};
};

void expect_like(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  expect_close(actual.to(at::kCPU), expected, tolerance(expected.scalar_type()), what);
}

void CudaKernels::compare_norm(const at::Tensor& x, const at::Tensor& gy, std::uint64_t seed) {
  const at::ScalarType dtype = x.scalar_type();
  const at::IntArrayRef shape = x.sizes(), rows = shape.slice(0, shape.size() - 1);
  const at::Tensor w = randn({shape.back()}, dtype, seed), gw = randn(w.sizes(), at::kFloat, seed + 1);
  const at::Tensor y = empty(shape, dtype), rstd = empty(rows, at::kFloat), gx = empty(shape, dtype);
  const at::Tensor residual = randn(shape, dtype, seed + 2);
  const at::Tensor x2 = here(x), w2 = here(w), y2 = here(y), rstd2 = here(rstd), gw2 = here(gw);
  generic::rms_norm_forward(x, w, 1e-5, y, rstd, form_);
  norm_forward(x2, w2, y2, rstd2);
  expect_like(y2, y, "y");
  expect_close(rstd2.to(at::kCPU), rstd, 1e-6, "rstd");

  for (const bool with_residual : {false, true}) {
    const at::Tensor more = with_residual ? residual : at::Tensor();
    generic::rms_norm_backward(
        {.gy = gy, .x = x, .weight = w, .rstd = rstd, .residual_grad = more, .gx = gx, .gweight = gw, .form = form_});
    const at::Tensor gx2 = here(gy);  // in place, as in the q and k norms
    norm_backward(gx2, x2, w2, rstd2, here(more), gx2, gw2);
    expect_like(gx2, gx, "gx");
    expect_close(gw2.to(at::kCPU), gw, dtype == at::kFloat ? 1e-5 : 1e-3, "gw");
  }
}

TEST_P(CudaKernels, NormAgreesWithTheGenericOperation) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const auto& [rows, width] :
         std::vector<std::pair<int, int>>{{1, 576}, {67, 64}, {9, 100}, {5, 6}, {3, 17}, {3, 1600}, {0, 64}})
      for (const NormWeight form : {NormWeight::plain, NormWeight::zero_centred, NormWeight::rounded_last}) {
        form_ = form;
        compare_norm(randn({rows, width}, dtype, 1, 2.0), randn({rows, width}, dtype, 2), 3);
      }
}

TEST_P(CudaKernels, NormTakesHeadsOfFusedRows) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t head_dim : {24, 64, 128}) {
      const at::Tensor rows = randn({7, 10 * head_dim}, dtype, 1), grads = randn(rows.sizes(), dtype, 2);
      const at::Tensor rows2 = here(rows), before = rows2.clone(), rstd = empty({7, 3}, at::kFloat), rstd2 = here(rstd);
      const at::Tensor w = randn({head_dim}, dtype, 3), w2 = here(w);
      const auto heads = [&](const at::Tensor& t) { return heads_view(t, 2, 3, head_dim); };
      compare_norm(heads(rows), heads(grads), 4);
      norm_forward(heads(rows2), w2, heads(rows2), rstd2);  // in place
      generic::rms_norm_forward(heads(rows), w, 1e-5, heads(rows), rstd);
      expect_like(heads(rows2), heads(rows).contiguous(), "y");
      for (const std::int64_t beside : {0, 5})
        EXPECT_TRUE(rows2.narrow(1, beside * head_dim, 2 * head_dim).equal(before.narrow(1, beside * head_dim, 2 * head_dim)));

      const at::Tensor grads2 = here(grads);
      norm_backward(heads(grads2), heads(before), w2, rstd2, {}, heads(grads2), {});
      generic::rms_norm_backward(
          {.gy = heads(grads), .x = heads(before.to(at::kCPU)), .weight = w, .rstd = rstd, .gx = heads(grads)});
      expect_like(grads2, grads, "gx and its neighbours");
    }
}

TEST_P(CudaKernels, NormRoundsBeforeTheWeight) {
  const at::Tensor x = randn({19, 576}, at::kBFloat16, 1), w = randn({576}, at::kBFloat16, 2);
  const at::Tensor y = empty(x.sizes(), at::kBFloat16), rstd = empty({19}, at::kFloat), y2 = here(y), rstd2 = here(rstd);
  generic::rms_norm_forward(x, w, 1e-5, y, rstd);
  norm_forward(here(x), here(w), y2, rstd2);
  EXPECT_LE(y2.to(at::kCPU).ne(y).sum().item<std::int64_t>(), y.numel() / 200);
}

TEST_P(CudaKernels, NormWeightGradientRepeatsItself) {
  const at::Tensor x = here(randn({300, 40}, at::kFloat, 1)), w = here(randn({40}, at::kFloat, 2)),
                   gy = here(randn({300, 40}, at::kFloat, 3));
  const at::Tensor y = here(empty(x.sizes(), at::kFloat)), rstd = here(empty({300}, at::kFloat)), gx = y.clone();
  norm_forward(x, w, y, rstd);
  std::vector<at::Tensor> sums;
  for (int run = 0; run < 2; ++run) {
    sums.push_back(here(zeros({40}, at::kFloat)));
    norm_backward(gy, x, w, rstd, {}, gx, sums.back());
  }
  EXPECT_TRUE(sums[0].equal(sums[1]));
}

TEST_P(CudaKernels, RopeAgreesWithTheGenericOperation) {
  const at::Tensor positions = int32s({0, 1, 2, 0, 1, 63, 7});
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t head_dim : {64, 128, 80, 24, 2})
      for (const auto direction : {RopeDirection::forward, RopeDirection::backward}) {
        std::vector<double> frequencies;
        for (std::int64_t i = 0; i < head_dim; i += 2)
          frequencies.push_back(std::pow(1e4, -static_cast<double>(i) / static_cast<double>(head_dim)));
        const RopeTable table = RopeTable::build(frequencies, 64, dtype, at::kCPU);
        const at::Tensor qkv = randn({7, 9 * head_dim}, dtype, 1), qkv2 = here(qkv);
        rotate(heads_view(qkv2, 0, 8, head_dim), here(positions), {here(table.cos), here(table.sin)}, direction);
        generic::rope(heads_view(qkv, 0, 8, head_dim), positions, table, direction);
        expect_like(qkv2, qkv, "rotated, and the values beside them");
        EXPECT_TRUE(qkv2.narrow(1, 8 * head_dim, head_dim).to(at::kCPU).equal(qkv.narrow(1, 8 * head_dim, head_dim)));
      }
}

TEST_P(CudaKernels, SwigluAgreesWithTheGenericOperation) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const auto& [rows, width] : std::vector<std::pair<int, int>>{{1, 1536}, {5, 16}, {19, 37}, {2, 1}, {3, 2104}}) {
      const at::Tensor gate_up = randn({rows, 2 * width}, dtype, 1, 3.0), gact = randn({rows, width}, dtype, 2);
      const at::Tensor act = empty(gact.sizes(), dtype), grad = empty(gate_up.sizes(), dtype), act2 = here(act),
                       grad2 = here(grad);
      const at::Tensor gate_up2 = here(gate_up), gact2 = here(gact);
      generic::swiglu_forward(gate_up, act);
      swiglu(gate_up2, act2);
      expect_like(act2, act, "act");
      generic::swiglu_backward(gate_up, gact, grad, {});
      swiglu_back(gate_up2, gact2, grad2, {});
      expect_like(grad2, grad, "gradient");
      swiglu_back(gate_up2, gact2, gate_up2, gact2);  // overwrites its inputs
      EXPECT_TRUE(gate_up2.equal(grad2));
      EXPECT_TRUE(gact2.equal(act2));
    }
}

TEST_P(CudaKernels, SwigluSurvivesExtremeGatesAndPassesNanOn) {
  const at::Tensor gate_up = zeros({1, 48}, at::kFloat).fill_(1.0);
  gate_up.narrow(1, 0, 8).fill_(-1e4);
  gate_up.narrow(1, 8, 8).fill_(1e4);
  gate_up[0][20].fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor gate_up2 = here(gate_up), act = here(zeros({1, 24}, at::kFloat)), grad = here(zeros({1, 48}, at::kFloat));
  swiglu(gate_up2, act);
  swiglu_back(gate_up2, here(zeros({1, 24}, at::kFloat).fill_(1.0)), grad, {});
  EXPECT_EQ(act.isfinite().sum().item<std::int64_t>(), 23);
  EXPECT_EQ(grad.isfinite().sum().item<std::int64_t>(), 46);
  EXPECT_TRUE(act[0][20].isnan().item<bool>());
}

TEST_P(CudaKernels, DropoutHasTheMasksOfTheCpu) {
  constexpr std::int64_t rows = 11;
  const at::Tensor ids = zeros({rows}, at::kLong).fill_((std::int64_t{5} << 33) + 3), positions = zeros({rows}, at::kInt);
  for (std::int64_t t = 0; t < rows; ++t) positions[t] = t % 4;
  const RowIdentity identity{ids, positions}, identity2{here(ids), here(positions)};
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t width : {1, 4, 30, 67, 576, 1040}) {
      const at::Tensor x = randn({rows, width}, dtype, 1), x2 = here(x), out2 = here(empty(x.sizes(), dtype));
      const at::Tensor expected = generic::dropout(x, kKey, identity, 0.3);
      drop({x2, out2, {}, {}}, identity2, 0.3);
      EXPECT_TRUE(out2.to(at::kCPU).equal(expected)) << "width " << width;
      const at::Tensor sum = randn(x.sizes(), dtype, 2), sum2 = here(sum);
      drop({{}, {}, x2, sum2}, identity2, 0.3);
      expect_like(sum2, sum + expected, "added");
      const at::Tensor again = here(sum), g2 = here(randn(x.sizes(), dtype, 3));
      drop({x2, out2.zero_(), g2, again}, identity2, 0.3);
      EXPECT_TRUE(out2.to(at::kCPU).equal(expected)) << "width " << width;
      expect_like(again, sum + generic::dropout(g2.to(at::kCPU), kKey, identity, 0.3), "added beside");
      drop({x2, x2, {}, {}}, identity2, 0.3);  // in place
      EXPECT_TRUE(x2.equal(out2));
    }
}

TEST_P(CudaKernels, NoiseMatchesTheCpu) {
  constexpr std::int64_t rows = 9;
  const at::Tensor ids = zeros({rows}, at::kLong).fill_((std::int64_t{5} << 33) + 3), positions = zeros({rows}, at::kInt);
  const at::Tensor lengths = zeros({rows}, at::kInt);
  for (std::int64_t t = 0; t < rows; ++t) positions[t] = t % 4, lengths[t] = 1 + 37 * t;
  const NoisyRows noisy{{ids, positions}, lengths}, noisy2{{here(ids), here(positions)}, here(lengths)};
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t width : {1, 4, 30, 67, 576, 1040}) {
      const at::Tensor x = randn({rows + 1, width}, dtype, 1), x2 = here(x);
      generic::add_embedding_noise(x, kKey, noisy, 5.0);
      add_noise(x2, noisy2, 5.0);
      expect_like(x2, x, "noise");
    }
}

void CudaKernels::cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad,
                                const at::Tensor& logprobs) {
  if (!on_gpu()) {
    with_type(logits.scalar_type(), [&]<class T>() {
      cuda::launch_cross_entropy(cross_entropy_args<T>(logits, targets, grad, logprobs), logits.size(0), simt::Launch());
    });
    return;
  }
  const at::Tensor unit = here(zeros({logits.size(1), logits.size(1)}, logits.scalar_type()));
  unit.diagonal().fill_(1.0);
  const at::Tensor x = logits.clone();
  std::vector<std::int32_t> all(static_cast<std::size_t>(x.size(0)));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
  const HeadLabels labels{here(int32s(all)), targets};
  if (!grad.defined()) return head_forward(x, unit, labels, logprobs, workspace_);
  if (!logprobs.defined()) return head_backward(x, unit, labels, grad, logits, {}, workspace_);
  head_forward_backward({.x = x, .weight = unit, .labels = labels, .grad_logprobs = grad, .logprobs = logprobs, .gx = logits},
                        workspace_);
}

TEST_P(CudaKernels, CrossEntropyAgreesWithTheGenericOperation) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t vocab : {3, 50, 1001, 4104}) {
      const at::Tensor logits = randn({3, vocab}, dtype, 1, 4.0), grad = randn({3}, at::kFloat, 2),
                       logprobs = empty({3}, at::kFloat);
      const at::Tensor targets = int32s({0, static_cast<std::int32_t>(vocab - 1), 2}), targets2 = here(targets);
      const at::Tensor alone = here(logits), both = here(logits), only_grad = here(logits), grad2 = here(grad);
      const at::Tensor logprobs2 = here(logprobs), logprobs3 = here(logprobs);
      cross_entropy(alone, targets2, {}, logprobs2);
      cross_entropy(both, targets2, grad2, logprobs3);
      cross_entropy(only_grad, targets2, grad2, {});
      EXPECT_TRUE(alone.to(at::kCPU).equal(logits)) << "logits without a gradient stay";
      generic::cross_entropy_rows(logits, targets, grad, logprobs);
      expect_close(logprobs2.to(at::kCPU), logprobs, 1e-5, "logprobs");
      EXPECT_TRUE(logprobs3.equal(logprobs2));
      expect_like(both, logits, "gradient");
      EXPECT_TRUE(only_grad.equal(both));
    }
}

/// Three parts of the logits: targets lie in the first two columns of the middle part, in the first part, and in the last.
TEST_P(CudaKernels, SoftmaxOfAPartOfTheVocabularyAgreesWithTheGenericOperation) {
  for (const at::ScalarType dtype : kKernelDtypes)
    for (const std::int64_t count : {3, 50, 1001, 4104}) {
      const at::Tensor all = randn({4, 3 * count}, dtype, 1, 4.0), grad = randn({4}, at::kFloat, 2),
                       lse = all.to(at::kFloat).logsumexp(1);
      all[3].slice(0, count, 2 * count).fill_(-1e4);  // the maximum lies far above, in another part
      const auto token = [&](std::int64_t t) { return static_cast<std::int32_t>(t); };
      const at::Tensor targets = int32s({token(count), token(2 * count - 1), token(count - 1), token(2 * count)});
      for (const std::int64_t p : {0, 1, 2}) {
        const VocabularyPart part{.first = p * count, .whole = 3 * count, .part = p, .parts = 3};
        const at::Tensor logits = all.narrow(1, part.first, count).contiguous(), got = here(logits);
        const at::Tensor expected = empty({3, 4}, at::kFloat), statistics = here(expected);
        generic::softmax_statistics(logits, targets, part, expected);
        softmax_of_part(got, here(targets), part, statistics);
        EXPECT_TRUE(got.to(at::kCPU).equal(logits)) << "the logits stay";
        expect_close(statistics[1].to(at::kCPU), expected[1], 1e-6, "sums");
        for (const std::int64_t row : {0, 2}) EXPECT_TRUE(statistics[row].to(at::kCPU).equal(expected[row])) << row;
        generic::softmax_gradient(logits, targets, part, grad, lse);
        gradient_of_part(got, here(targets), part, here(grad), here(lse));
        expect_like(got, logits, "gradient");
      }
    }
}

TEST_P(CudaKernels, CrossEntropySurvivesLargeLogitsAndPassesNanOn) {
  const at::Tensor logits = randn({3, 700}, at::kFloat, 1, 1e4);
  logits[1][600].fill_(std::numeric_limits<double>::quiet_NaN());
  logits[2].fill_(-std::numeric_limits<double>::infinity());
  logits[2][5].fill_(-1e30);
  const at::Tensor rows = here(logits), logprobs = here(zeros({3}, at::kFloat)), expected = zeros({3}, at::kFloat);
  const at::Tensor targets = int32s({3, 3, 5});
  // Stand-in only: on the GPU, the product with the identity would turn infinities into NaN.
  if (on_gpu()) GTEST_SKIP() << "covered by the stand-in";
  cross_entropy(rows, targets, zeros({3}, at::kFloat).fill_(1.0), logprobs);
  generic::cross_entropy_rows(logits, targets, {}, expected);
  expect_close(logprobs[0], expected[0], 1e-6, "large");
  EXPECT_TRUE(logprobs[1].isnan().item<bool>() && rows[1].isnan().all().item<bool>());
  EXPECT_EQ(logprobs[2].item<float>(), 0.0F);
  EXPECT_TRUE(rows[2].eq(0).all().item<bool>());
}

TEST_P(CudaKernels, QuantisedWeightsAreDecodedToTheBitsOfTheCpu) {
  for (const Quantization& kind : kKinds)
    for (const auto& [rows, columns] : kShapes) {
      const auto layout = QuantizedLayout::of(kind, rows, columns);
      compare_decoded(quantized(randn({rows, columns}, at::kFloat, 1), layout), layout);
    }
  for (const Quantization& kind : kStoredKinds)
    for (const auto& [rows, columns] : kStoredShapes) {
      const auto layout = QuantizedLayout::of(kind, rows, columns);
      compare_decoded(stored_bytes(layout), layout);
    }
}

TEST_P(CudaKernels, EmbeddingGradientHasTheBitsOfTheCpu) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t t = 0; t < 270; ++t) tokens.push_back(t % 7 == 0 ? 3 : (t * 31) % 50);
  for (const auto& [dtype, width, grad] : std::vector<std::tuple<at::ScalarType, std::int64_t, at::ScalarType>>{
           {at::kFloat, 16, at::kFloat}, {at::kBFloat16, 37, at::kFloat}, {at::kBFloat16, 16, at::kBFloat16}}) {
    const at::Tensor gy = randn({270, width}, dtype, 1), gweight = randn({50, width}, grad, 2), gweight2 = here(gweight);
    embedding_backward(int32s(tokens), gy, gweight);
    embed_back(here(int32s(tokens)), here(gy), gweight2);
    EXPECT_TRUE(gweight2.to(at::kCPU).equal(gweight)) << "width " << width;
    const VocabularyPart part{.first = 20, .whole = 50, .part = 1, .parts = 2};
    const at::Tensor before = randn({25, width}, grad, 3), rows = before.clone(), rows2 = here(before);
    embedding_backward(int32s(tokens), gy, rows, part);
    embed_back(here(int32s(tokens)), here(gy), rows2, part);
    EXPECT_TRUE(rows2.to(at::kCPU).equal(rows) && !rows.equal(before)) << "a part, width " << width;
  }
}

TEST_P(CudaKernels, TermsOfLoraAgreeWithTheirProducts) {
  // Tokens that fill no tile, ranks of several, two parts beside columns of none; factors by rank and by column.
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf})
    for (const auto& [tokens, rank, columns, by_rank] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>, bool>>{{1, 8, {32}, false},
                                                                                              {75, 8, {288, 64}, false},
                                                                                              {75, 16, {64, 288}, true},
                                                                                              {64, 40, {256}, false},
                                                                                              {130, 24, {96}, true}})
      for (const bool add : {false, true}) {
        std::int64_t width = 8;  // these columns belong to no part
        for (const std::int64_t n : columns) width += n;
        const auto parts = static_cast<std::int64_t>(columns.size());
        const at::Tensor out = randn({tokens, width}, dtype, 1), saved = randn({tokens, parts * rank}, dtype, 2);
        const at::Tensor out2 = here(out), saved2 = here(saved), expected = out.to(at::kDouble);
        std::vector<blocked::NarrowTerm> terms;
        std::int64_t column0 = 8;
        for (std::int64_t i = 0; i < parts; column0 += columns[static_cast<std::size_t>(i++)]) {
          const std::int64_t n = columns[static_cast<std::size_t>(i)];
          const at::Tensor b = by_rank ? randn({rank, n}, dtype, 3) : randn({n, rank}, dtype, 3).t();
          const at::Tensor place = expected.narrow(1, column0, n);
          if (!add) place.zero_();
          place.add_(saved.narrow(1, i * rank, rank).to(at::kDouble).matmul(b.to(at::kDouble)));
          terms.push_back({saved2.narrow(1, i * rank, rank), by_rank ? here(b) : here(b.t()).t(), column0});
        }
        if (on_gpu()) {
          ASSERT_TRUE(device_kernels(out2)->narrow_terms(out2, terms, add));
        } else if (dtype == at::kBFloat16) {
          const auto args = narrow_terms_args<c10::BFloat16>(out2, terms, add);
          ASSERT_TRUE(args.has_value());
          cuda::launch_narrow_terms(*args, simt::Launch());
        } else {
          const auto args = narrow_terms_args<c10::Half>(out2, terms, add);
          ASSERT_TRUE(args.has_value());
          cuda::launch_narrow_terms(*args, simt::Launch());
        }
        expect_close(out2.to(at::kCPU).to(at::kDouble), expected, dtype == at::kHalf ? 1e-3 : 8e-3, "terms");
      }
}

INSTANTIATE_TEST_SUITE_P(Where, CudaKernels, ::testing::Bool(), name_of_place);

__global__ void race(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[63 - threadIdx.x];
  values[threadIdx.x] = -1;
}
__global__ void half_a_barrier() {
  if (threadIdx.x < 40) __syncthreads();
}

TEST(Simt, ShowsAMissingBarrier) {
  int out[64];
  simt::Launch()(device::LaunchShape{dim3(1), dim3(64)}, &race, static_cast<int*>(out));
  int wrong = 0;
  for (int i = 0; i < 64; ++i) wrong += out[i] != 63 - i ? 1 : 0;
  EXPECT_GT(wrong, 0);
}

TEST(Simt, RefusesABarrierThatSomeThreadsMiss) {
  EXPECT_THROW(simt::Launch()(device::LaunchShape{dim3(1), dim3(64)}, &half_a_barrier), std::runtime_error);
}

}  // namespace
}  // namespace qft::ops

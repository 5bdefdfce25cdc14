#include "qft/ops/experts.h"

#include "ops/experts/experts_grouped_cuda.h"
#include "ops_support.h"
#include "support/gpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

namespace qft::ops {
namespace {

using namespace testing;

constexpr std::int64_t kExperts = 5;

/// Outputs of a router's forward.
struct Routed {
  at::Tensor probabilities, log_sums, experts, weights;
};

Routed route(const at::Tensor& logits, std::int64_t per_token, bool normalise) {
  const auto statistics = statistics_dtype(logits.scalar_type());
  const std::int64_t tokens = logits.size(0);
  Routed r{empty(logits.sizes(), statistics), empty({tokens}, statistics), zeros({tokens, per_token}, at::kInt),
           empty({tokens, per_token}, logits.scalar_type())};
  route_forward(logits, normalise, r.probabilities, r.log_sums, r.experts, r.weights);
  return r;
}

TEST(Experts, ARouterAgreesWithAutograd) {
  for (const at::ScalarType dtype : kDtypes)
    for (const bool normalise : {false, true}) {
      const at::Tensor logits = randn({9, kExperts}, dtype, 1, 2.0);
      const Routed r = route(logits, 3, normalise);
      const at::Tensor index = r.experts.to(at::kLong);
      const auto weights_of = [&](const std::vector<at::Tensor>& in) {
        const at::Tensor chosen = at::gather(at::softmax(in[0], -1), 1, index);
        return normalise ? chosen / chosen.sum(1, true) : chosen;
      };
      const auto statistics = statistics_dtype(dtype);
      const at::Tensor gweights = randn({9, 3}, statistics, 2), gp = randn({9, kExperts}, statistics, 3),
                       gsums = randn({9}, statistics, 4);
      const Oracle of_weights = differentiate(weights_of, {logits}, gweights);
      const Oracle of_all = differentiate([](const auto& in) { return at::softmax(in[0], -1); }, {logits}, gp);
      const Oracle of_sums = differentiate([](const auto& in) { return at::logsumexp(in[0], 1); }, {logits}, gsums);
      expect_close(r.weights, of_weights.value, tolerance(dtype), "weights");
      expect_close(r.log_sums, of_sums.value, tolerance(dtype), "log sums");
      const at::Tensor glogits = empty(logits.sizes(), dtype);
      route_backward(r.probabilities, r.experts, normalise, {gweights, gp, gsums}, glogits);
      expect_close(glogits, of_weights.grads[0] + of_all.grads[0] + of_sums.grads[0], tolerance(dtype), "logits' gradient");
    }
}

TEST(Experts, RowsLieByExpertInTheOrderOfTokens) {
  const at::Tensor experts = int32s({2, 0, 0, 4, 2, 0}).view({3, 2});
  const ExpertRows grouped_rows = group_by_expert(experts, kExperts, workspace());
  EXPECT_EQ(grouped_rows.begins, (std::vector<std::int64_t>{0, 3, 3, 5, 5, 6}));
  EXPECT_TRUE(grouped_rows.tokens.equal(int32s({0, 1, 2, 0, 2, 1}).to(at::kLong)));
  EXPECT_TRUE(grouped_rows.places.equal(int32s({3, 0, 1, 5, 4, 2}).to(at::kLong)));
  EXPECT_EQ(group_by_expert(experts.narrow(0, 0, 0), kExperts, workspace()).count(), 0);
}

struct Stack {
  at::Tensor weight, a, b;  ///< [E, N, K], [E, 2 r, K], [E, N, r]: two linears of N / 2 rows
  LinearWeights weights() const {
    const std::int64_t half = b.size(1) / 2, rank = b.size(2);
    LinearWeights w{weight, {}, {}};
    for (std::int64_t i = 0; i < 2; ++i)
      w.lora.push_back(
          {a.narrow(1, i * rank, rank), b.narrow(1, i * half, half), i * half, half, 0.7, static_cast<std::uint32_t>(i)});
    return w;
  }
  static LinearGrads grads(const at::Tensor& w, const at::Tensor& a, const at::Tensor& b) {
    const std::int64_t half = b.size(1) / 2, rank = b.size(2);
    LinearGrads g{w, {}, {}};
    for (std::int64_t i = 0; i < 2; ++i) g.lora.push_back({a.narrow(1, i * rank, rank), b.narrow(1, i * half, half)});
    return g;
  }
};

/// Reference: for each token, the sum over its experts of (W + scaling B A) x.
at::Tensor token_by_token(const std::vector<at::Tensor>& in, const at::Tensor& experts) {
  const at::Tensor &x = in[0], &w = in[1], &a = in[2], &b = in[3];
  const std::int64_t half = b.size(1) / 2, rank = b.size(2);
  std::vector<at::Tensor> rows;
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    at::Tensor sum;
    for (std::int64_t j = 0; j < experts.size(1); ++j) {
      const std::int64_t e = experts[t][j].item<int>();
      std::vector<at::Tensor> halves;
      for (std::int64_t i = 0; i < 2; ++i)
        halves.push_back(w[e].narrow(0, i * half, half) +
                         0.7 * at::matmul(b[e].narrow(0, i * half, half), a[e].narrow(0, i * rank, rank)));
      const at::Tensor y = at::matmul(at::stack(halves).view({2 * half, -1}), x[t]);
      sum = sum.defined() ? sum + y : y;
    }
    rows.push_back(sum);
  }
  return at::stack(rows);
}

struct Widths {
  std::int64_t in, out, rank;
};

/// Runs on `device`; the reference runs on the CPU.
void compare_linears(at::ScalarType dtype, const Widths& n, c10::Device device) {
  constexpr std::int64_t kTokens = 37;
  const auto here = [&](const at::Tensor& t) { return t.to(device); };
  const at::Tensor x = randn({kTokens, n.in}, dtype, 1), gy = randn({kTokens, n.out}, dtype, 2);
  const Stack stack{randn({kExperts, n.out, n.in}, dtype, 3), randn({kExperts, 2 * n.rank, n.in}, dtype, 4),
                    randn({kExperts, n.out, n.rank}, dtype, 5)};
  at::Tensor experts = route(randn({kTokens, kExperts}, dtype, 6), 2, false).experts;
  experts.masked_fill_(experts == 3, 1);  // the fourth expert has no row
  experts.select(1, 1).masked_fill_(experts.select(1, 0) == experts.select(1, 1), 0);
  const Oracle oracle =
      differentiate([&](const auto& in) { return token_by_token(in, experts); }, {x, stack.weight, stack.a, stack.b}, gy);
  Workspace own(device);
  const Stack stack_here{here(stack.weight), here(stack.a), here(stack.b)};
  const ExpertRows grouped_rows = group_by_expert(here(experts), kExperts, own);
  const std::int64_t rows = grouped_rows.count();
  const at::Tensor in = here(empty({rows, n.in}, dtype)), y = here(empty({rows, n.out}, dtype)),
                   saved = here(empty({rows, 2 * n.rank}, dtype)), out = here(empty({kTokens, n.out}, dtype));
  gather_rows(here(x), grouped_rows, in);
  experts_forward(grouped_rows, in, stack_here.weights(), 2, {}, y, saved, own);
  sum_rows(y, grouped_rows, out, GradMode::write);
  expect_close(out.cpu(), oracle.value, tolerance(dtype), "out");

  const auto wide = statistics_dtype(dtype);
  const at::Tensor gw = here(zeros(stack.weight.sizes(), wide)), ga = here(zeros(stack.a.sizes(), wide)),
                   gb = here(zeros(stack.b.sizes(), wide)), gx = here(empty({rows, n.in}, dtype)),
                   gsum = here(empty({kTokens, n.in}, dtype));
  gather_rows(here(gy), grouped_rows, y);
  experts_backward(grouped_rows, {.gy = y, .x = in, .saved = saved, .gx = gx}, stack_here.weights(), 2, {},
                   Stack::grads(gw, ga, gb), own);
  sum_rows(gx, grouped_rows, gsum, GradMode::write);
  expect_close(gsum.cpu(), oracle.grads[0], tolerance(dtype), "x gradient");
  expect_close(gw.cpu(), oracle.grads[1], tolerance(dtype), "weight gradient");
  expect_close(ga.cpu(), oracle.grads[2], tolerance(dtype), "A gradient");
  expect_close(gb.cpu(), oracle.grads[3], tolerance(dtype), "B gradient");
  for (const at::Tensor& g : {gw, ga, gb}) EXPECT_EQ(g[3].abs().max().item<double>(), 0.0) << "expert without rows";
  const at::Tensor twice = gsum.clone();
  sum_rows(gx, grouped_rows, twice, GradMode::accumulate);
  expect_close(twice.cpu(), 2 * oracle.grads[0], tolerance(dtype), "the sum added again");
}

TEST(Experts, LinearsOfExpertsAgreeWithAutograd) {
  for (const at::ScalarType dtype : kDtypes) compare_linears(dtype, {24, 20, 4}, at::kCPU);
}

TEST(ExpertsOnGpu, LinearsOfExpertsAgreeWithAutograd) {
  if (!test::has_gpu()) GTEST_SKIP() << "no GPU";
  for (const at::ScalarType dtype : kDtypes)
    for (const Widths& widths : {Widths{24, 20, 4}, Widths{64, 48, 8}, Widths{64, 48, 3}})
      compare_linears(dtype, widths, c10::Device(at::kCUDA, 0));
}

/// A grouped product, as on a device; undefined if b has rows of four numbers (LoRA's).
at::Tensor of_groups(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  if (b.size(-1) == 4) return {};
  std::vector<at::Tensor> parts;
  for (std::int64_t g = 0, begin = 0, end = 0; g < ends.size(0); ++g, begin = end) {
    end = ends[g].item<int>();
    const auto rows = [&](const at::Tensor& t, std::int64_t dim) { return t.narrow(dim, begin, end - begin); };
    parts.push_back(b.dim() == 3 ? at::matmul(rows(a, 0), b[g]) : at::matmul(rows(a, 1), rows(b, 0)));
  }
  return b.dim() == 3 ? at::cat(parts) : at::stack(parts);
}

TEST(Experts, GroupedProductsMatchSingleProducts) {
  constexpr std::int64_t kTokens = 21, kIn = 24, kOut = 20, kRank = 4;
  const Stack stack{randn({kExperts, kOut, kIn}, at::kDouble, 3), randn({kExperts, 2 * kRank, kIn}, at::kDouble, 4),
                    randn({kExperts, kOut, kRank}, at::kDouble, 5)};
  at::Tensor experts = route(randn({kTokens, kExperts}, at::kDouble, 6), 2, false).experts;
  experts.masked_fill_(experts == 3, 1);  // the fourth expert has no row
  const ExpertRows grouped_rows = group_by_expert(experts, kExperts, workspace());
  const std::int64_t rows = grouped_rows.count();
  const at::Tensor x = randn({rows, kIn}, at::kDouble, 1), gy = randn({rows, kOut}, at::kDouble, 2);
  struct Result {
    at::Tensor y, saved, gx, gw, ga, gb;
  };
  const auto run = [&](GradMode mode, bool grouped) {
    const Result r{zeros({rows, kOut}, at::kDouble),    zeros({rows, 2 * kRank}, at::kDouble),
                   randn({rows, kIn}, at::kDouble, 7),  zeros(stack.weight.sizes(), at::kDouble),
                   zeros(stack.a.sizes(), at::kDouble), zeros(stack.b.sizes(), at::kDouble)};
    const LinearGrads grads = Stack::grads(r.gw, r.ga, r.gb);
    if (grouped) {
      EXPECT_TRUE(grouped_forward(of_groups, grouped_rows, x, stack.weights(), {}, r.y, r.saved));
      EXPECT_TRUE(grouped_backward(of_groups, grouped_rows, {.gy = gy, .x = x, .saved = r.saved, .gx = r.gx, .mode = mode},
                                   stack.weights(), {}, grads, workspace()));
    } else {
      experts_forward(grouped_rows, x, stack.weights(), 2, {}, r.y, r.saved, workspace());
      experts_backward(grouped_rows, {.gy = gy, .x = x, .saved = r.saved, .gx = r.gx, .mode = mode}, stack.weights(), 2, {},
                       grads, workspace());
    }
    return r;
  };
  for (const GradMode mode : {GradMode::skip, GradMode::write, GradMode::accumulate}) {
    const Result all = run(mode, true), each = run(mode, false);
    expect_close(all.y, each.y, 1e-14, "y");
    expect_close(all.saved, each.saved, 1e-14, "saved");
    expect_close(all.gx, each.gx, 1e-14, "gx");
    expect_close(all.gw, each.gw, 1e-14, "gw");
    expect_close(all.ga, each.ga, 1e-14, "ga");
    expect_close(all.gb, each.gb, 1e-14, "gb");
  }
  const LoraDropout dropout{.p = 0.5, .key = {}, .rows = {}};
  EXPECT_FALSE(grouped_forward(of_groups, grouped_rows, x, stack.weights(), dropout, gy, {})) << "masks differ per expert";
}

/// With few rows, as in decoding: a token's result does not depend on the experts' other tokens.
TEST(Experts, AreBatchInvariant) {
  constexpr std::int64_t kTokens = 8, kIn = 48, kOut = 32;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = randn({kTokens, kIn}, dtype, 1), weight = randn({kExperts, kOut, kIn}, dtype, 3);
    const at::Tensor experts = route(randn({kTokens, kExperts}, dtype, 6), 2, false).experts;
    const auto sums = [&](std::int64_t first, std::int64_t count) {
      const ExpertRows grouped_rows = group_by_expert(experts.narrow(0, first, count), kExperts, workspace());
      const at::Tensor in = empty({grouped_rows.count(), kIn}, dtype), y = empty({grouped_rows.count(), kOut}, dtype),
                       out = empty({count, kOut}, dtype);
      gather_rows(x.narrow(0, first, count), grouped_rows, in);
      experts_forward(grouped_rows, in, {weight, {}, {}}, 1, {}, y, {}, workspace());
      sum_rows(y, grouped_rows, out, GradMode::write);
      return out;
    };
    const at::Tensor all = sums(0, kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) EXPECT_TRUE(sums(t, 1).equal(all.narrow(0, t, 1))) << t;
  }
}

}  // namespace
}  // namespace qft::ops

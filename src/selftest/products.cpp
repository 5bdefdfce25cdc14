// Checks linear layers with LoRA, sums over tokens, and the head with its cross-entropy, against fp64 on the CPU.
#include "qft/ops/head.h"
#include "qft/ops/linear.h"
#include "qft/ops/token_sums.h"

#include <array>
#include <cmath>

#include "runner.h"
#include "values.h"
#include <ATen/TensorOperators.h>

namespace qft::selftest {
namespace {

constexpr const char* kProductsReport =
    "compare with compute_dtype: float32 (this table has fp32 too); if only half types fail, train in fp32 and update the "
    "driver; report this line with the output of qft --version";
constexpr Subject kLinear{"products", "linear with LoRA",
                          "projections or their gradients are wrong: LoRA and full training learn something else",
                          kProductsReport};
constexpr Subject kSums{"products", "token sums", "gradients of weights are wrong: the loss falls slowly or not at all",
                        kProductsReport};
constexpr Subject kHead{"products", "cross-entropy head", "loss, perplexity and all gradients are wrong", kProductsReport};

struct Group {
  const char* name;
  std::int64_t tokens, inputs, rank;
  std::vector<std::int64_t> modules;  ///< rows of each module; all except the second have LoRA
  bool bias;
  double dropout;
};
const std::vector<Group>& groups() {
  static const std::vector<Group> all = {{"1 token", 1, 64, 8, {31}, false, 0.0},
                                         {"q, k, v of odd sizes", 37, 97, 5, {41, 17, 19}, true, 0.0},
                                         {"q, k, v with dropout", 37, 97, 5, {41, 17, 19}, true, 0.25},
                                         {"q, k, v of a 0.5B model", 67, 896, 8, {896, 128, 128}, true, 0.0},
                                         {"output of a 0.5B model", 67, 896, 8, {896}, false, 0.0}};
  return all;
}

/// One side of the comparison: the device, or fp64 on the CPU.
struct Layer {
  at::Tensor x, gy;
  ops::LinearWeights w;
  ops::LinearGrads grads;
  ops::LoraDropout dropout;
  at::Tensor y, saved, gx;
};

using Half = at::Tensor Values::Pair::*;

Layer one_side(const Group& g, const std::vector<Values::Pair>& drawn, Half half, const Values& values, at::ScalarType grads) {
  Layer l;
  l.x = drawn[0].*half;
  l.gy = drawn[1].*half;
  l.w.weight = drawn[2].*half;
  l.grads.weight = values.zeros(l.w.weight.sizes(), grads);
  if (g.bias) l.w.bias = drawn[3].*half, l.grads.bias = values.zeros(l.w.bias.sizes(), grads);
  std::size_t next = 4;
  std::int64_t row0 = 0;
  for (std::size_t m = 0; m < g.modules.size(); row0 += g.modules[m++]) {
    if (m == 1) continue;
    const at::Tensor &a = drawn[next].*half, &b = drawn[next + 1].*half;
    l.w.lora.push_back({a, b, row0, g.modules[m], 2.0, static_cast<std::uint32_t>(m)});
    l.grads.lora.push_back({values.zeros(a.sizes(), grads), values.zeros(b.sizes(), grads)});
    next += 2;
  }
  std::vector<std::int64_t> samples(static_cast<std::size_t>(g.tokens), 12345);
  l.dropout = {g.dropout, {1, 2, 3, 0}, {}};
  if (g.dropout > 0) l.dropout.rows = {values.int64s(samples), values.int32s(numbers(g.tokens, 1000))};
  l.y = values.result_buffer(l.gy.sizes());
  l.gx = values.result_buffer(l.x.sizes());
  l.saved = values.result_buffer({g.tokens, ops::lora_saved_columns(l.w)});
  ops::Workspace workspace(values.device());
  ops::linear_forward(l.x, l.w, l.dropout, l.y, l.saved, workspace);
  ops::linear_backward({.gy = l.gy, .x = l.x, .saved = l.saved, .gx = l.gx}, l.w, l.dropout, l.grads, workspace);
  return l;
}

void check_linear(Runner& runner, at::ScalarType type, const Group& g) {
  runner.check(kLinear, fmt::format("{}, {}", name_of(type), g.name), [&](Outcome& out) {
    Values values(runner.device(), type);
    std::int64_t rows = 0;
    for (const std::int64_t n : g.modules) rows += n;
    std::vector<Values::Pair> drawn = {values.normal({g.tokens, g.inputs}), values.normal({g.tokens, rows}),
                                       values.normal({rows, g.inputs}, 0.1), values.normal({rows})};
    for (std::size_t m = 0; m < g.modules.size(); ++m) {
      if (m == 1) continue;
      drawn.push_back(values.normal({g.rank, g.inputs}, 0.1));
      drawn.push_back(values.normal({g.modules[m], g.rank}, 0.3));
    }
    const Layer ours = one_side(g, drawn, &Values::Pair::here, values, values.statistics());
    const Layer want = one_side(g, drawn, &Values::Pair::exact, Values(c10::kCPU, at::kDouble), at::kDouble);
    const double limit = limits_of(type).product;
    out.compare("the result", ours.y, want.y, limit);
    out.compare("the input's gradient", ours.gx, want.gx, limit);
    out.compare("the weight's gradient", ours.grads.weight, want.grads.weight, limit);
    if (g.bias) out.compare("the bias' gradient", ours.grads.bias, want.grads.bias, limit);
    for (std::size_t i = 0; i < ours.grads.lora.size(); ++i) {
      out.compare("lora_a's gradient", ours.grads.lora[i].a, want.grads.lora[i].a, limit);
      out.compare("lora_b's gradient", ours.grads.lora[i].b, want.grads.lora[i].b, limit);
    }
  });
}

void check_sums(Runner& runner, at::ScalarType type, std::int64_t tokens, std::int64_t m, std::int64_t n) {
  runner.check(kSums, fmt::format("{}, {} tokens, {} x {}", name_of(type), tokens, m, n), [&](Outcome& out) {
    Values values(runner.device(), type);
    ops::Workspace workspace(runner.device());
    const auto a = values.rows(tokens, m), b = values.normal({tokens, n}), c = values.normal({tokens, m});
    const at::Tensor wide = values.zeros({m, n}, values.statistics()), same = values.zeros({n, m}, type);
    ops::add_token_sums(std::array{ops::TokenSum{wide, a.here, b.here}, ops::TokenSum{same.t(), c.here, b.here}}, workspace);
    out.compare("a sum into " + std::string(name_of(values.statistics())), wide, a.exact.t().matmul(b.exact),
                limits_of(type).product);
    out.compare("a sum into its own type", same.t(), c.exact.t().matmul(b.exact), limits_of(type).product);
  });
}

void check_head(Runner& runner, at::ScalarType type, std::int64_t tokens, std::int64_t vocabulary, std::int64_t width) {
  runner.check(kHead, fmt::format("{}, {} tokens, {} x {}", name_of(type), tokens, vocabulary, width), [&](Outcome& out) {
    Values values(runner.device(), type);
    const Values oracle(c10::kCPU, at::kDouble);
    std::vector<std::int32_t> rows;
    for (std::int64_t t = 0; t < tokens; t += tokens > 1 ? 2 : 1) rows.push_back(static_cast<std::int32_t>(t));
    const auto labels = static_cast<std::int64_t>(rows.size());
    const auto targets = numbers(labels, vocabulary);
    const auto x = values.normal({tokens, width}),
               w = values.normal({vocabulary, width}, 2.0 / std::sqrt(static_cast<double>(width)));
    Values wide(runner.device(), values.statistics());
    const auto grad = wide.normal({labels});
    const auto run = [&](const Values& side, const at::Tensor& x1, const at::Tensor& w1, const at::Tensor& g1) {
      const ops::HeadLabels where{side.int32s(rows), side.int32s(targets)};
      ops::Workspace workspace(side.device());
      const at::Tensor logprobs = side.result_buffer({labels}, side.statistics()), gx = side.result_buffer(x1.sizes()),
                       gw = side.zeros(w1.sizes(), side.statistics());
      ops::head_forward_backward(
          {.x = x1, .weight = w1, .labels = where, .grad_logprobs = g1, .logprobs = logprobs, .gx = gx, .gweight = gw},
          workspace);
      return std::array{logprobs, gx, gw};
    };
    const auto ours = run(values, x.here, w.here, grad.here), want = run(oracle, x.exact, w.exact, grad.exact);
    const double limit = limits_of(type).product;
    out.compare("the log-probabilities", ours[0], want[0], limit);
    out.compare("the input's gradient", ours[1], want[1], limit);
    out.compare("the weight's gradient", ours[2], want[2], limit);
  });
}

}  // namespace

void check_products(Runner& runner) {
  for (const at::ScalarType type : runner.checked_types()) {
    for (const Group& g : groups()) check_linear(runner, type, g);
    check_sums(runner, type, 1, 17, 31);
    check_sums(runner, type, 37, 97, 41);
    check_sums(runner, type, 1499, 896, 128);
    check_head(runner, type, 1, 53, 24);
    check_head(runner, type, 37, 1009, 97);
    check_head(runner, type, 37, 151936, 24);
  }
}

}  // namespace qft::selftest

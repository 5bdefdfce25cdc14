// Compares the weighted label losses with LLaMA-Factory's formulas, differentiated by autograd through the head.
#include "engine/token_losses.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/vocabulary_parts.h"
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/kl_div.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr std::int64_t kTokens = 150, kWidth = 16;
constexpr double kTokenLabels = 400.0;  // labels of the global batch

/// All tokens except each third one are labels. With `weighs` the labels weigh 0.5, 1, 1.5, 2 or 2.5.
model::MicroInput input(std::int64_t vocabulary, bool weighs = false) {
  std::vector<std::int32_t> tokens, labels;
  for (std::int32_t t = 0; t < kTokens; ++t) {
    tokens.push_back(static_cast<std::int32_t>(t * 31 % vocabulary));
    if (t % 3 != 0) labels.push_back(t);
  }
  auto in =
      model::MicroInput::build(tokens, std::vector<std::int32_t>{0, static_cast<std::int32_t>(kTokens)}, labels, {}, at::kCPU);
  if (weighs)
    in.set_column(columns::kLabelWeights,
                  {IndexSpace::label, at::arange(in.labels.size(), at::kDouble).remainder(5).add(1).mul(0.5)});
  return in;
}

struct Result {
  at::Tensor loss, nll, weight, kl, gx, gtable;  ///< all except the gradients are sums over the labels
};

constexpr double kAsftAlpha = 0.3;

/// The logits of `rows` in the type that LLaMA-Factory's losses use.
at::Tensor logits_of(const at::Tensor& rows, const at::Tensor& table) {
  return at::matmul(rows, table.t()).to(rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

/// dft_loss_func, eaft_loss_func and asft_loss_func of LLaMA-Factory. `other`: the reference's x.
Result judged(const std::string& name, double alpha, const at::Tensor& x, const at::Tensor& other, const at::Tensor& table,
              const model::MicroInput& in) {
  const at::Tensor own_x = x.detach().clone().requires_grad_(), own_table = table.detach().clone().requires_grad_();
  const at::Tensor rows = in.labels.rows.to(at::kLong), logits = logits_of(own_x.index_select(0, rows), own_table);
  const at::Tensor nll = -at::log_softmax(logits, -1).gather(1, in.labels.targets.to(at::kLong).unsqueeze(1)).squeeze(1);
  at::Tensor weight;
  if (name == "dft" || name == "asft") weight = at::exp(-nll.detach());
  if (name == "eaft") {
    const at::Tensor top = std::get<0>(at::topk(logits.detach(), std::min<std::int64_t>(20, logits.size(1)), -1));
    const at::Tensor logp = top - at::logsumexp(top, -1, true);
    weight = at::pow(-(at::exp(logp) * logp).sum(-1) / 3.0, alpha);
  }
  const at::Tensor given = in.columns.find(columns::kLabelWeights);
  const at::Tensor counts = given.defined() ? given.to(nll.scalar_type()) : at::ones_like(nll.detach());
  weight = weight * counts;
  at::Tensor loss = (nll * weight).sum(), kl;
  if (name == "asft") {
    const at::Tensor q = at::softmax(logits_of(other.index_select(0, rows), table), -1);
    const at::Tensor rows_kl = at::kl_div(at::log_softmax(logits, -1), q, at::Reduction::None).sum(-1);
    loss = loss + kAsftAlpha * (rows_kl * counts).sum();
    kl = rows_kl.detach().sum();
  }
  (loss / kTokenLabels).backward();
  return {loss.detach(), nll.detach().sum(), weight.sum(), kl, own_x.grad(), own_table.grad()};
}

Result ours(const std::string& name, double alpha, const at::Tensor& x, const at::Tensor& other, const at::Tensor& table,
            const model::MicroInput& in) {
  const WeightedTokenLoss loss(token_loss(name), {alpha, kAsftAlpha}, {kTokenLabels, 1, kTokens});
  EXPECT_EQ(loss.denominator(), kTokenLabels);
  const auto statistics = at::TensorOptions(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const at::Tensor logprobs = at::empty({in.labels.size()}, statistics),
                   rows = at::empty({loss.row_values(), in.labels.size()}, statistics);
  const at::Tensor grad = at::empty({in.labels.size()}, statistics), gx = at::empty_like(x);
  const at::Tensor gtable = at::zeros(table.sizes(), statistics);
  ops::Workspace workspace((c10::Device(c10::kCPU)));
  const at::Tensor reference = loss.reference_rows() ? other.index_select(0, in.labels.rows.to(at::kLong)) : at::Tensor();
  const auto read = [&](const ops::HeadChunk& chunk) {
    return loss.read_rows(in, chunk, rows.narrow(1, chunk.first, chunk.size()), grad.narrow(0, chunk.first, chunk.size()));
  };
  ops::head_forward_backward(
      {.x = x, .weight = table, .labels = in.labels, .grad_logprobs = grad, .logprobs = logprobs, .gx = gx, .gweight = gtable},
      workspace, ops::kMinEfficientRows, {read, reference});
  const at::Tensor sums = loss.observe(in, {logprobs, {}, rows}, {});
  EXPECT_EQ(sums.numel(), loss.reference_rows() ? 7 : 5);
  EXPECT_EQ(sums[2].item<double>(), static_cast<double>(in.labels.size()));

  const at::Tensor again = at::empty_like(logprobs), values = at::empty_like(rows);
  const auto look = [&](const ops::HeadChunk& chunk) {
    return loss.read_rows(in, chunk, values.narrow(1, chunk.first, chunk.size()), {});
  };
  ops::head_forward(x, table, in.labels, again, workspace, ops::kMinEfficientRows, {look, reference});
  EXPECT_TRUE(loss.observe(in, {again, {}, values}, {}).equal(sums)) << "an evaluation scores what a step does";
  return {sums[0], sums[1], sums[3], loss.reference_rows() ? sums[5] : at::Tensor(), gx, gtable};
}

double error(const at::Tensor& value, const at::Tensor& exact) {
  return ((value.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

TEST(TokenLosses, LossAndGradientsAreTheFormulas) {
  for (const TokenLoss& loss : token_losses())
    for (const double alpha : {1.0, 0.5, 2.0})
      for (const auto& [vocabulary, weighs] : {std::pair(7, false), {300, false}, {300, true}})
        for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
          const std::string name(loss.name);
          SCOPED_TRACE(name + " alpha " + std::to_string(alpha) + " of " + std::to_string(vocabulary) +
                       (weighs ? " weighed in " : " in ") + c10::toString(type));
          at::manual_seed(3);
          const auto in = input(vocabulary, weighs);
          const at::Tensor x = at::randn({kTokens, kWidth}, at::kDouble).to(type);
          const at::Tensor table = (at::randn({vocabulary, kWidth}, at::kDouble) * 0.6).to(type);
          const at::Tensor other = (x.to(at::kDouble) + at::randn({kTokens, kWidth}, at::kDouble) * 0.3).to(type);
          const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
          const Result exact = judged(name, alpha, wide(x), wide(other), wide(table), in);
          const Result got = ours(name, alpha, x, other, table, in);
          const Result yardstick = type == at::kDouble ? exact : judged(name, alpha, x, other, table, in);
          for (const auto& [what, member] : {std::pair{"loss", &Result::loss},
                                             {"nll", &Result::nll},
                                             {"weight", &Result::weight},
                                             {"kl", &Result::kl},
                                             {"gx", &Result::gx},
                                             {"gtable", &Result::gtable}}) {
            ASSERT_EQ((got.*member).defined(), (exact.*member).defined());
            if (!(exact.*member).defined()) continue;
            const double limit = type == at::kDouble ? 1e-12 : std::max(1.5 * error(yardstick.*member, exact.*member), 1e-6);
            EXPECT_LE(error(got.*member, exact.*member), limit) << what;
          }
        }
}

/// What a rank computes from its rows of the table.
struct PartResult {
  at::Tensor logprobs, rows, grad, gx, gtable;
};

PartResult on_part(const std::string& name, const at::Tensor& x, const at::Tensor& other, const at::Tensor& own_table,
                   const model::MicroInput& in, const ops::VocabularyPart& part) {
  const WeightedTokenLoss loss(token_loss(name), {0.5, kAsftAlpha}, {kTokenLabels, 1, kTokens});
  const auto statistics = at::TensorOptions(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const std::int64_t labels = in.labels.size();
  const PartResult r{at::empty({labels}, statistics), at::empty({loss.row_values(), labels}, statistics),
                     at::empty({labels}, statistics), at::empty_like(x), at::zeros(own_table.sizes(), statistics)};
  ops::Workspace workspace((c10::Device(c10::kCPU)));
  const auto read = [&](const ops::HeadChunk& chunk) {
    return loss.read_rows(in, chunk, r.rows.narrow(1, chunk.first, chunk.size()), r.grad.narrow(0, chunk.first, chunk.size()));
  };
  const at::Tensor reference = loss.reference_rows() ? other.index_select(0, in.labels.rows.to(at::kLong)) : at::Tensor();
  ops::head_forward_backward({.x = x,
                              .weight = own_table,
                              .labels = in.labels,
                              .grad_logprobs = r.grad,
                              .logprobs = r.logprobs,
                              .gx = r.gx,
                              .gweight = r.gtable,
                              .vocabulary = part},
                             workspace, ops::kMinEfficientRows, {read, reference, own_table});
  return r;
}

TEST(TokenLosses, AreTheSameOnPartsOfTheVocabulary) {
  for (const TokenLoss& loss : token_losses())
    for (const std::int64_t vocabulary : {53, 151})
      for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
        for (const std::int64_t parts : {2, 3, 4}) {
          SCOPED_TRACE(std::string(loss.name) + " on " + std::to_string(parts) + " parts of " + std::to_string(vocabulary) +
                       " in " + c10::toString(type));
          at::manual_seed(5);
          const auto in = input(vocabulary, true);
          const at::Tensor x = at::randn({kTokens, kWidth}, at::kDouble).to(type), other = (x + 0.3).to(type);
          const at::Tensor table = (at::randn({vocabulary, kWidth}, at::kDouble) * 0.6).to(type);
          const PartResult whole = on_part(std::string(loss.name), x, other, table, in, {});
          std::vector<PartResult> results(static_cast<std::size_t>(parts));
          test::on_parts(test::even_bounds(vocabulary, parts), [&](const ops::VocabularyPart& part, const test::Tokens& own) {
            results[static_cast<std::size_t>(part.part)] = on_part(std::string(loss.name), x, other, own.of(table), in, part);
          });
          at::Tensor gx = at::zeros(x.sizes(), at::kDouble);
          std::vector<at::Tensor> tables;
          const double limit = type == at::kDouble ? 1e-12 : type == at::kFloat ? 5e-6 : 1e-2;
          for (const PartResult& r : results) {
            EXPECT_TRUE(r.rows.equal(results[0].rows) && r.grad.equal(results[0].grad)) << "the same bits on all ranks";
            gx += r.gx;
            tables.push_back(r.gtable);
          }
          EXPECT_LE(error(results[0].logprobs, whole.logprobs), limit);
          EXPECT_LE(error(results[0].rows, whole.rows), limit);
          EXPECT_LE(error(results[0].grad, whole.grad), limit);
          EXPECT_LE(error(gx, whole.gx), limit);
          EXPECT_LE(error(at::cat(tables), whole.gtable), limit);
        }
}

TEST(TokenLosses, AreFiniteWhereTheModelIsSure) {
  const auto in = input(40);
  for (const TokenLoss& loss : token_losses()) {
    at::Tensor table = at::zeros({40, kWidth}, at::kFloat);
    table[3].fill_(100.0F);
    const at::Tensor x = at::ones({kTokens, kWidth}, at::kFloat);
    const Result got = ours(std::string(loss.name), 1.0, x, -x, table, in);
    EXPECT_TRUE(got.loss.isfinite().item<bool>()) << loss.name;
    EXPECT_TRUE(got.gx.isfinite().all().item<bool>()) << loss.name;
  }
}

TEST(TokenLosses, AreKnownByTheirNames) {
  EXPECT_EQ(token_loss("dft").name, "dft");
  EXPECT_THROW(token_loss("simpo"), Error);
}

}  // namespace
}  // namespace qft::engine

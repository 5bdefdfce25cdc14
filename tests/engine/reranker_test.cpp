// Compares the losses of rerankers with numbers of tests/interop/embedding_losses.py.
#include "engine/reranker.h"

#include "qft/core/log.h"
#include "qft/io/file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "pack/fixture.h"
#include "test_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

using nlohmann::json;

/// Queries with these numbers of documents; each document has two tokens.
model::MicroInput ranking_input(const std::vector<std::int32_t>& sizes, const std::vector<double>& labels) {
  std::vector<std::int32_t> items = {0}, bounds = {0};
  for (const std::int32_t size : sizes) items.push_back(items.back() + size);
  for (std::int32_t d = 0; d < items.back(); ++d) bounds.push_back(bounds.back() + 2);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(bounds.back()));
  auto in = model::MicroInput::build(tokens, bounds, {}, {}, at::kCPU, items);
  Columns columns;
  columns.emplace(columns::kDocumentLabels, Column{IndexSpace::sequence, labels});
  in.set_columns(columns);
  return in;
}

std::vector<double> first_is_relevant(const std::vector<std::int32_t>& sizes) {
  std::vector<double> labels;
  for (const std::int32_t size : sizes)
    for (std::int32_t d = 0; d < size; ++d) labels.push_back(d == 0 ? 1.0 : 0.0);
  return labels;
}

RerankerLoss loss_of(const json& keys, double documents, double groups) {
  return {{keys.value("reranker_loss", "pointwise") == "listwise", keys.value("listwise_temperature", 1.0),
           keys.value("listwise_min_group_size", std::int64_t{2})},
          {.named = {{std::string(totals::kDocuments), documents}, {std::string(totals::kGroups), groups}}}};
}

TEST(Reranker, LossesGradientsAndMetricsAreThoseOfTheFormulas) {
  const json all = json::parse(io::read_text_file(test::kSourceDir + "/tests/engine/embedding_losses.json"));
  ASSERT_EQ(all.at("reranker").size(), 3U);
  for (const json& row : all.at("reranker")) {
    SCOPED_TRACE(row.at("name"));
    const auto sizes = row.at("sizes").get<std::vector<std::int32_t>>();
    const auto in = ranking_input(sizes, first_is_relevant(sizes));
    const at::Tensor scores = at::tensor(row.at("scores").get<std::vector<double>>(), at::kDouble), grad = at::empty_like(scores);
    const auto smallest = row.at("options").value("listwise_min_group_size", 2);
    const auto groups = std::ranges::count_if(sizes, [&](std::int32_t size) { return size >= smallest; });
    const auto loss = loss_of(row.at("options"), static_cast<double>(scores.numel()), static_cast<double>(groups));
    const at::Tensor sums = loss.observe(in, {scores, {}}, grad);
    EXPECT_NEAR(sums[0].item<double>() / loss.denominator(), row.at("loss").get<double>(), 1e-12);
    const at::Tensor expected = at::tensor(row.at("gradient").get<std::vector<double>>(), at::kDouble);
    EXPECT_LT((grad - expected).abs().max().item<double>(), 1e-12);
    for (std::size_t m = 0; m < loss.metrics().size(); ++m) {
      const auto at = static_cast<std::int64_t>(1 + 2 * m);
      EXPECT_NEAR(sums[at].item<double>() / sums[at + 1].item<double>(),
                  row.at("metrics").at(std::string(loss.metrics()[m])).get<double>(), 1e-12)
          << loss.metrics()[m];
    }
    EXPECT_TRUE(loss.observe(in, {scores, {}}, {}).equal(sums));
  }
}

/// A group begins at each relevant document: an item with two of them has two groups.
TEST(Reranker, AnItemMayHaveSeveralGroups) {
  const json listwise = {{"reranker_loss", "listwise"}};
  const at::Tensor scores = at::tensor({0.5, -1.0, 2.0, 0.25, 0.75}, at::kDouble), grad = at::empty_like(scores),
                   other = at::empty_like(scores);
  const auto one = loss_of(listwise, 5, 2).observe(ranking_input({5}, {1, 0, 1, 0, 0}), {scores, {}}, grad);
  const auto two = loss_of(listwise, 5, 2).observe(ranking_input({2, 3}, {1, 0, 1, 0, 0}), {scores, {}}, other);
  EXPECT_TRUE(one.equal(two) && grad.equal(other));
}

TEST(Reranker, FarScoresStayFinite) {
  const at::Tensor scores = at::tensor({-1e4, 1e4, 1e4, -1e4}, at::kDouble), grad = at::empty_like(scores);
  for (const char* kind : {"pointwise", "listwise"}) {
    const auto sums = loss_of({{"reranker_loss", kind}}, 4, 2).observe(ranking_input({2, 2}, {1, 0, 1, 0}), {scores, {}}, grad);
    EXPECT_TRUE(sums.isfinite().all().item<bool>() && grad.isfinite().all().item<bool>()) << kind;
    EXPECT_NEAR(sums[0].item<double>(), 2e4, 1e-9) << kind;
  }
}

/// Pairs with one label each: a query may have only an irrelevant document. It has a pointwise loss, and no group.
TEST(Reranker, IrrelevantDocumentsAloneHaveNoGroup) {
  const at::Tensor scores = at::tensor({0.5, -0.5}, at::kDouble), grad = at::empty_like(scores);
  const auto in = ranking_input({1, 1}, {0, 1});
  const auto pointwise = loss_of(json::object(), 2, 0).observe(in, {scores, {}}, grad);
  EXPECT_NEAR(pointwise[0].item<double>(), 2 * std::log1p(std::exp(0.5)), 1e-12);
  EXPECT_GT(grad[0].item<double>(), 0.0);
  EXPECT_LT(grad[1].item<double>(), 0.0);
  const auto listwise = loss_of({{"reranker_loss", "listwise"}}, 2, 0).observe(in, {scores, {}}, grad);
  EXPECT_EQ(listwise[0].item<double>(), 0.0);
  EXPECT_EQ(grad.abs().max().item<double>(), 0.0);
}

/// NaN is not above any score, but a broken model is not a perfect one.
TEST(Reranker, MetricsOfBrokenScoresAreNotNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const auto in = ranking_input({2, 2}, {1, 0, 1, 0});
  for (const double broken : {nan, inf, -inf})
    for (const std::int64_t at : {0, 1}) {
      at::Tensor scores = at::tensor({1.0, 0.0, 1.0, 0.0}, at::kDouble);
      scores[at] = broken;
      for (const char* kind : {"pointwise", "listwise"}) {
        const auto sums = loss_of({{"reranker_loss", kind}}, 4, 2).observe(in, {scores, {}}, {});
        for (const std::int64_t metric : {0, 1, 2})
          EXPECT_TRUE(std::isnan(sums[1 + 2 * metric].item<double>())) << kind << metric;
      }
    }
}

TEST(Reranker, AGroupOfOneDocumentHasNoPlace) {
  const at::Tensor scores = at::tensor({-1.0, 0.5, 1.5}, at::kDouble);
  const auto sums = loss_of({{"reranker_loss", "listwise"}}, 3, 1).observe(ranking_input({1, 2}, {1, 1, 0}), {scores, {}}, {});
  EXPECT_EQ(sums[1].item<double>(), 0.0);
  EXPECT_EQ(sums[2].item<double>(), 1.0);
}

/// Items of these numbers of documents and relevant ones, checked as training data.
struct CheckedRankings {
  test::TempDir dir;
  config::RunConfig config;

  CheckedRankings() {
    config.finetuning.stage = "reranker";
    config.finetuning.reranker_type = "generative";
  }
  void check(const std::vector<std::pair<int, int>>& sizes) {
    std::vector<encode::EncodedItem> items;
    for (const auto& [documents, positives] : sizes)
      items.push_back(test::make_documents(std::ssize(items), documents, positives));
    const auto pack = test::build_varying(dir / "p.h5", items);
    reranker_objective(config).check_items(*pack, nullptr, config);
  }
  std::string error(const std::vector<std::pair<int, int>>& sizes) {
    return test::error_of([&] { check(sizes); });
  }
};

TEST(Reranker, LabelsMustDiffer) {
  CheckedRankings data;
  for (const char* loss : {"pointwise", "listwise"}) {
    data.config.finetuning.reranker_loss = loss;
    EXPECT_TRUE(test::contains(data.error({{1, 0}, {2, 0}}), "all 2 queries have only documents with label 0")) << loss;
    EXPECT_TRUE(test::contains(data.error({{1, 1}, {2, 2}}), "all 2 queries have only documents with label 1")) << loss;
  }
  data.config.finetuning.reranker_loss = "pointwise";
  EXPECT_NO_THROW(data.check({{1, 1}, {1, 0}}));
  data.config.finetuning.max_negative_samples = 0;
  EXPECT_TRUE(test::contains(data.error({{3, 1}}), "set max_negative_samples above 0"));
}

TEST(Reranker, ListwiseNeedsGroups) {
  CheckedRankings data;
  data.config.finetuning.reranker_loss = "listwise";
  data.config.finetuning.listwise_min_group_size = 3;
  const std::string none = data.error({{2, 1}, {1, 1}, {3, 2}});
  EXPECT_TRUE(test::contains(none, "3 of 3 queries have groups of fewer than listwise_min_group_size 3 documents")) << none;
  EXPECT_TRUE(test::contains(none, "set reranker_loss: pointwise")) << none;
  log::init({});
  testing::internal::CaptureStderr();
  data.check({{3, 1}, {2, 1}, {4, 2}});
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(test::contains(warning, "1 of 3 queries have groups of fewer")) << warning;
  EXPECT_TRUE(test::contains(warning, "the first is item 1")) << warning;
  data.config.finetuning.max_negative_samples = 1;  // the groups as drawn
  EXPECT_TRUE(test::contains(data.error({{3, 1}, {4, 2}}), "2 of 2 queries"));
}

}  // namespace
}  // namespace qft::engine

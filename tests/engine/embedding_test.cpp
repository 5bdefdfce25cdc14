// Compares the losses of embedding models with numbers of tests/interop/embedding_losses.py, and their gradients with
// differences.
#include "engine/embedding.h"

#include "qft/core/error.h"
#include "qft/engine/data_setup.h"
#include "qft/io/file.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "pack/fixture.h"
#include "test_paths.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

using nlohmann::json;

struct EmbeddingCase {
  std::string name;
  EmbeddingOptions options;
  at::Tensor vectors, gradient;  ///< [S, D]
  std::vector<std::int64_t> offsets = {0};
  std::vector<double> labels;
  double loss;
  std::map<std::string, double> metrics;
};

EmbeddingOptions options_from(const json& keys) {
  config::FinetuningArgs args;
  args.embedding_loss = keys.value("embedding_loss", args.embedding_loss);
  args.infonce_temperature = keys.value("infonce_temperature", args.infonce_temperature);
  args.infonce_use_batch = keys.value("infonce_use_batch", args.infonce_use_batch);
  args.infonce_mask_fake_negative = keys.value("infonce_mask_fake_negative", false);
  args.infonce_fake_neg_margin = keys.value("infonce_fake_neg_margin", args.infonce_fake_neg_margin);
  args.infonce_include_qq = keys.value("infonce_include_qq", false);
  args.infonce_include_dd = keys.value("infonce_include_dd", false);
  args.contrastive_margin = keys.value("contrastive_margin", args.contrastive_margin);
  args.mrl_dims = keys.value("mrl_dims", json());
  return embedding_options(args);
}

std::vector<EmbeddingCase> embedding_cases() {
  const json all = json::parse(io::read_text_file(test::kSourceDir + "/tests/engine/embedding_losses.json"));
  std::vector<EmbeddingCase> cases;
  for (const json& row : all.at("embedding")) {
    EmbeddingCase& c = cases.emplace_back();
    c.name = row.at("name").get<std::string>();
    c.options = options_from(row.at("options"));
    for (const json& size : row.at("sizes")) c.offsets.push_back(c.offsets.back() + size.get<std::int64_t>());
    c.vectors = at::tensor(row.at("vectors").get<std::vector<double>>(), at::kDouble).view({c.offsets.back(), -1});
    c.gradient = at::tensor(row.at("gradient").get<std::vector<double>>(), at::kDouble).view_as(c.vectors);
    c.labels = row.at("labels").get<std::vector<double>>();
    c.loss = row.at("loss").get<double>();
    c.metrics = row.at("metrics").get<std::map<std::string, double>>();
  }
  return cases;
}

TEST(Embedding, LossesAndGradientsAreThoseOfTheFormulas) {
  const auto cases = embedding_cases();
  ASSERT_GT(cases.size(), 10U);
  for (const EmbeddingCase& c : cases) {
    SCOPED_TRACE(c.name);
    const BatchLossResult found = embedding_loss(c.options, c.vectors, c.offsets, c.labels);
    EXPECT_NEAR(found.loss, c.loss, 1e-12);
    EXPECT_GT(c.gradient.abs().max().item<double>(), 1e-3) << "the case says nothing";
    EXPECT_LT((found.gradient - c.gradient).abs().max().item<double>(), 1e-12);
  }
}

TEST(Embedding, MetricsAreThoseOfTheFormulas) {
  int compared = 0;
  for (const EmbeddingCase& c : embedding_cases()) {
    SCOPED_TRACE(c.name);
    if (c.metrics.empty()) continue;
    const auto found = embedding_metrics(c.options, c.vectors, c.offsets, c.labels);
    ASSERT_EQ(found.size(), c.metrics.size());
    for (const auto& [name, value] : c.metrics) EXPECT_NEAR(found.at(name), value, 1e-12) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

/// More anchors than one block of similarities has, with all parts of the softmax: the gradient against a central difference.
TEST(Embedding, GradientAcrossBlocksIsThatOfDifferences) {
  EmbeddingOptions options;
  options.infonce = {.temperature = 0.3, .include_qq = true, .include_dd = true};
  constexpr std::int64_t kItems = 1100;
  std::vector<std::int64_t> offsets = {0};
  for (std::int64_t i = 0; i < kItems; ++i) offsets.push_back(offsets.back() + 2 + i % 2);
  const at::Tensor x = at::randn({offsets.back(), 4}, at::kDouble), direction = at::randn_like(x);
  const double step = 1e-5;
  const double above = embedding_loss(options, x + direction * step, offsets, {}).loss;
  const double below = embedding_loss(options, x - direction * step, offsets, {}).loss;
  const double slope = (embedding_loss(options, x, offsets, {}).gradient * direction).sum().item<double>();
  EXPECT_NEAR((above - below) / (2 * step), slope, 1e-8);
}

/// Two anchors share a positive: neither sees the other's as a negative.
TEST(Embedding, TheSameTextIsNoNegative) {
  EmbeddingOptions options;
  const at::Tensor x = at::randn({7, 4}, at::kDouble);
  x.select(0, 4).copy_(x.select(0, 1));  // items: (0, 1, 2), (3, 4), (5, 6)
  const std::vector<std::int64_t> offsets = {0, 3, 5, 7};
  const std::vector<double> texts = {10, 11, 12, 13, 11, 15, 16};
  const at::Tensor unit = x / x.norm(2, {1}, true), s = unit.mm(unit.t()) / options.infonce.temperature;
  const auto term = [&](std::int64_t row, std::int64_t own, const std::vector<std::int64_t>& documents) {
    double sum = 0.0;
    for (const std::int64_t d : documents) sum += std::exp(s[row][d].item<double>());
    return std::log(sum) - s[row][own].item<double>();
  };
  const double first = term(0, 1, {1, 2, 6}), second = term(3, 4, {2, 4, 6}), third = term(5, 6, {1, 2, 4, 6});
  const double masked = (first + second + third) / 3;
  EXPECT_NEAR(embedding_loss(options, x, offsets, {}, texts).loss, masked, 1e-12);
  EXPECT_GT(embedding_loss(options, x, offsets, {}).loss, masked);
  EXPECT_LE(embedding_metrics(options, x, offsets, {}).at("margin"),
            embedding_metrics(options, x, offsets, {}, texts).at("margin"));
  options.infonce.include_dd = true;
  EXPECT_LT(embedding_loss(options, x, offsets, {}, texts).loss, embedding_loss(options, x, offsets, {}).loss);
  options.infonce.mask_duplicates = false;
  EXPECT_EQ(embedding_loss(options, x, offsets, {}, texts).loss, embedding_loss(options, x, offsets, {}).loss);
}

TEST(Embedding, EqualTokensHaveEqualHashes) {
  loader::MicroBatch batch;
  batch.tokens = {1, 2, 3, 1, 2, 2, 1, 1, 2, 3};
  batch.cu_seqlens = {0, 3, 5, 7, 10};
  const std::vector<double> hashes = token_hashes(batch).values;
  ASSERT_EQ(hashes.size(), 4U);
  EXPECT_EQ(hashes[0], hashes[3]);
  EXPECT_NE(hashes[1], hashes[2]);
  EXPECT_NE(hashes[0], hashes[1]);
}

/// A scale of the vectors changes nothing, and the gradient has no part along a vector.
TEST(Embedding, OnlyDirectionsMatter) {
  const EmbeddingCase c = embedding_cases().front();
  EXPECT_NEAR(embedding_loss(c.options, c.vectors * 3.0, c.offsets, {}).loss, c.loss, 1e-12);
  const at::Tensor along = (embedding_loss(c.options, c.vectors, c.offsets, {}).gradient * c.vectors).sum(1);
  EXPECT_LT(along.abs().max().item<double>(), 1e-12);
}

TEST(Embedding, ItemsThatDoNotFitTheLossAreRefused) {
  EmbeddingOptions options;
  const at::Tensor x = at::randn({3, 4}, at::kDouble);
  const std::vector<std::int64_t> alone = {0, 1, 3}, triple = {0, 3};
  const std::vector<double> label = {1.0};
  EXPECT_THROW(embedding_loss(options, x, alone, {}), Error);
  options.loss = "contrastive";
  EXPECT_THROW(embedding_loss(options, x, triple, label), Error);
  EXPECT_THROW(embedding_loss(options, x.narrow(0, 0, 2), std::vector<std::int64_t>{0, 2}, {}), Error) << "no label";
  options = {.widths = {{5, 1.0}}};
  EXPECT_THROW(embedding_loss(options, x, triple, {}), Error);
}

/// One pair has no correlation, and a single anchor without negatives no margin: such metrics are left out.
TEST(Embedding, MetricsWithoutAMeaningAreLeftOut) {
  EmbeddingOptions options;
  const at::Tensor x = at::randn({2, 4}, at::kDouble);
  const std::vector<std::int64_t> one = {0, 2};
  EXPECT_EQ(embedding_metrics(options, x, one, {}).size(), 1U);
  options.loss = "cosine_similarity";
  EXPECT_TRUE(embedding_metrics(options, x, one, std::vector<double>{0.5}).empty());
}

/// Anchors alone can be embedded; documents must suit the loss.
TEST(Embedding, ASetOfAnchorsAloneHasNoDocuments) {
  const test::TempDir dir;
  config::RunConfig config;
  config.finetuning.stage = "embedding";
  const auto alone = test::make_documents(0, 1, 0), pair = test::make_documents(1, 2, 1);
  EXPECT_FALSE(has_documents({.pack = test::build_varying(dir / "a.h5", {alone, alone})}, config));
  const EvalSet mixed{.pack = test::build_varying(dir / "b.h5", {alone, pair})};
  EXPECT_TRUE(has_documents(mixed, config));
  const auto first = std::make_shared<const std::vector<std::int64_t>>(1, 0);
  EXPECT_FALSE(has_documents({.pack = mixed.pack, .items = first}, config));
  config.finetuning.stage = "reranker";
  EXPECT_TRUE(has_documents({.pack = test::build_varying(dir / "c.h5", {alone})}, config));
}

}  // namespace
}  // namespace qft::engine

// Losses over the vectors of the whole global batch: the same numbers on any number of ranks and in any micro-batches, and
// gradients that differences confirm, with dropout and noise.
#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/engine/batch_vectors.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "equivalence.h"
#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

constexpr int kItems = 9;
constexpr std::string_view kNames[] = {"mean_similarity"};

/// Returns 1 to 9 sequences, a different number for each item.
int sequences_of(int item) {
  return 1 + item * 5 % kItems;
}

loader::MicroBatch micro_batch(int step, int first, int last) {
  loader::MicroBatch batch;
  batch.cu_seqlens = batch.item_offsets = {0};
  Column label{IndexSpace::item}, sign{IndexSpace::sequence};
  for (int item = first; item < last; ++item) {
    for (int s = 0; s < sequences_of(item); ++s) {
      const int number = 1000 * step + 10 * item + s;
      const auto tokens = selftest::small_tokens(number, 2 + number * 7 % 11);
      batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
      batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.tokens.size()));
      batch.samples.push_back(number);
      sign.values.push_back(s % 2 == 0 ? 1.0 : -0.5);
    }
    batch.item_offsets.push_back(static_cast<std::int32_t>(batch.samples.size()));
    batch.items.push_back(item);
    label.values.push_back(0.25 * item);
  }
  batch.columns = {{"sign", sign}, {"label", label}};
  return batch;
}

/// Cross-entropy of each item's first vector against all vectors of the batch; its last one is the answer. Weighted by both
/// columns. Not a sum over items.
engine::BatchLossResult contrast(const at::Tensor& given, std::span<const std::int64_t> offsets, const Columns& columns) {
  const at::Tensor vectors = given.detach().clone().requires_grad_(true);
  std::vector<std::int64_t> first(offsets.begin(), offsets.end() - 1), last;
  for (const std::int64_t end : offsets.subspan(1)) last.push_back(end - 1);
  const auto rows = [&](std::vector<std::int64_t>& index) { return vectors.index_select(0, at::tensor(index, at::kLong)); };
  const auto tensor_of = [&](const char* name) { return at::tensor(columns.at(name).values, at::kDouble); };
  const at::Tensor anchors = rows(first), answers = rows(last), logits = anchors.matmul(vectors.t()) * tensor_of("sign") / 0.5;
  const at::Tensor each = logits.logsumexp(1) - (anchors * answers).sum(1) / 0.5;
  const at::Tensor loss = (each * (1.0 + tensor_of("label"))).mean();
  loss.backward();
  return {loss.item<double>(), {{"mean_similarity", anchors.matmul(answers.t()).mean().item<double>()}}, vectors.grad()};
}

engine::BatchVectorOptions contrast_options() {
  return {.loss = contrast, .columns = {{"sign", IndexSpace::sequence}, {"label", IndexSpace::item}}, .metrics = {kNames[0]}};
}

/// A model whose steps take the items 0 to 8, divided into micro-batches that begin at `cuts`.
class VectorRun {
 public:
  VectorRun(Case c, comm::Communicator& comm, std::vector<int> cuts, c10::Device device = device_under_test())
      : case_(with_vectors(std::move(c))), run_(case_, comm, device), comm_(comm), cuts_(std::move(cuts)) {
    cuts_.push_back(kItems);
  }

  /// Runs a training step without an update.
  StepResult train(int number) {
    const int bins = static_cast<int>(cuts_.size()) - 1, ranks = comm_.size();
    const int first = bins * comm_.rank() / ranks, last = bins * (comm_.rank() + 1) / ranks, rounds = (bins + ranks - 1) / ranks;
    std::vector<loader::MicroBatch> batches;
    for (int b = first; b < last; ++b)
      batches.push_back(micro_batch(number, cuts_[static_cast<std::size_t>(b)], cuts_[static_cast<std::size_t>(b) + 1]));
    const engine::SourceBatch batch{batches, rounds, first, static_cast<std::uint64_t>(number)};
    std::vector<model::MicroInput> inputs;
    for (const loader::MicroBatch& micro : batches) inputs.push_back(run_.instance().input(micro));
    engine::BatchVectors source({config_, run_.instance(), nullptr, /*training=*/true}, contrast_options());
    BatchTotals totals{.items = kItems};
    source.begin(bins);
    source.observe(batch, [&] { return std::span<const model::MicroInput>(inputs); });
    source.finish(run_.instance().groups(), totals, nullptr);
    source.fill(batch, inputs);
    const engine::BatchVectorObjective objective(totals, kNames);
    const MicroRange range = case_.deterministic ? MicroRange{first, last - first, bins} : MicroRange{};
    return run_.executor().train(run_.list(static_cast<int>(inputs.size()), rounds), inputs, objective,
                                 static_cast<std::uint64_t>(number), {}, case_.loss_scale, range);
  }

  StepResult step(int number) {
    const StepResult result = train(number);
    run_.instance().update(case_.learning_rate, 1.0 / case_.loss_scale);
    return result;
  }

  TinyRun& run() { return run_; }
  const config::RunConfig& config() const { return config_; }

 private:
  static Case with_vectors(Case c) {
    c.vectors = true;
    return c;
  }

  Case case_;
  TinyRun run_;
  comm::Communicator& comm_;
  std::vector<int> cuts_;
  config::RunConfig config_;
};

Case noisy(bool lora) {
  return {.tied = lora, .lora = lora, .dropout = lora ? 0.3 : 0.0, .noise_alpha = 2.0};
}

/// The gradient from an SGD step against the difference of two losses, along a random direction. The losses come from training
/// passes, so both passes must draw the same masks and noise.
TEST(BatchVectors, TheGradientIsThatOfTheLoss) {
  for (const bool lora : {false, true}) {
    Case c = noisy(lora);
    c.optim = "sgd";
    c.learning_rate = 1.0;
    const auto self = comm::make_self_communicator();
    VectorRun run(c, *self, {0, 3, 4, 7}, c10::kCPU);
    engine::Instance& instance = run.run().instance();
    std::vector<at::Tensor> values, before, directions;
    std::vector<double> decays;
    for (int u = 0; u < instance.spec().num_units(); ++u)
      for (const auto& p : instance.spec().units[static_cast<std::size_t>(u)].params)
        if (p.trainable) {
          values.push_back(instance.param(u, p).values);
          before.push_back(values.back().clone());
          directions.push_back(at::randn(values.back().sizes(), at::kDouble));
          decays.push_back(p.weight_decay ? instance.plan().hyper.weight_decay : 0.0);
        }
    run.step(3);
    double expected = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i)
      expected += ((before[i] - values[i] - before[i] * decays[i]) * directions[i]).sum().item<double>();
    constexpr double kStep = 1e-6;  // the error grows with its square
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i].copy_(before[i] + directions[i] * distance);
      instance.publish();
      return run.train(3).loss;
    };
    const double found = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_GT(std::abs(found), 1e-3);
    EXPECT_NEAR(found, expected, 1e-6 * std::abs(found)) << (lora ? "LoRA" : "full");
  }
}

TEST(BatchVectors, IsTheSameUnderEveryStrategyAndOrder) {
  for (const bool lora : {false, true}) {
    const auto self = comm::make_self_communicator();
    VectorRun one(noisy(lora), *self, {0}, c10::kCPU);
    std::vector<StepResult> want;
    for (int s = 0; s < 2; ++s) want.push_back(one.step(s));
    const auto expected = one.run().weights();
    const std::vector<std::vector<int>> divisions = {{0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 3, 4, 6}, {0, 5}};
    std::size_t index = 0;
    for (const char* strategy : {"ddp", "zero2", "zero3"})
      for (const auto& cuts : divisions) {
        if (is_another_counts(strategy, ++index)) continue;
        Case c = noisy(lora);
        c.strategy = strategy;
        c.group = 1 + static_cast<int>(index % 2);
        c.recompute = index % 3 == 0;
        c.loss_scale = index % 2 == 0 ? 64.0 : 1.0;
        SCOPED_TRACE(fmt::format("{} LoRA {} {} micro-batches", strategy, lora, cuts.size()));
        VectorRun run(c, world(), cuts);
        for (std::size_t s = 0; s < want.size(); ++s) {
          const StepResult got = run.step(static_cast<int>(s));
          EXPECT_NEAR(got.loss, want[s].loss, 1e-10 * std::abs(want[s].loss));
          EXPECT_NEAR(got.grad_norm, want[s].grad_norm, 1e-9 * want[s].grad_norm);
          EXPECT_NEAR(got.metrics.at("mean_similarity"), want[s].metrics.at("mean_similarity"), 1e-10);
        }
        const auto weights = run.run().weights();
        ASSERT_EQ(weights.size(), expected.size());
        for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], expected[i], 1e-7) << i;
      }
  }
}

TEST(BatchVectors, InMicroBatchOrderTheBitsOfOneRank) {
  Case c = noisy(true);
  c.precision = optim::Precision::bf16();
  c.deterministic = true;
  const std::vector<int> cuts = {0, 2, 3, 5, 8};
  const auto self = comm::make_self_communicator();
  VectorRun one(c, *self, cuts), ours(c, world(), cuts);
  for (int s = 0; s < 2; ++s) {
    const StepResult want = one.step(s), got = ours.step(s);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.metrics, want.metrics);
    EXPECT_EQ(got.grad_norm, want.grad_norm);
  }
  EXPECT_EQ(ours.run().weights(), one.run().weights());
}

/// An evaluation divides the set into batches of the items of a step, the last one smaller, and has no dropout.
TEST(BatchVectors, EvaluatesInBatches) {
  VectorRun run(noisy(true), world(), {0});
  engine::Instance& instance = run.run().instance();
  config::RunConfig config = run.config();
  config.training.global_batch_size = 4;
  engine::BatchVectorOptions options = contrast_options();
  std::vector<std::int64_t> items;
  options.loss = [&](const at::Tensor& vectors, std::span<const std::int64_t> offsets, const Columns& columns) {
    items.push_back(std::ssize(offsets) - 1);
    EXPECT_EQ(vectors.size(0), offsets.back());
    EXPECT_EQ(columns.at("label").size(), offsets.size() - 1);
    EXPECT_LT(((vectors * vectors).sum(1) - 1.0).abs().max().item<double>(), 1e-12);
    return engine::BatchLossResult{static_cast<double>(items.size()), {}, {}};
  };
  options.evaluation_metrics = [&](const at::Tensor&, std::span<const std::int64_t> offsets, const Columns&) {
    return std::map<std::string, double>{{std::string(kNames[0]), static_cast<double>(offsets.size())}};
  };
  engine::BatchVectors source({config, instance, nullptr, /*training=*/false}, std::move(options));
  const int ranks = world().size(), rounds = (kItems + ranks - 1) / ranks;
  const auto batch_of = [&](int round) {
    const int item = std::min(round * ranks + world().rank(), kItems);
    return micro_batch(0, item, std::min(item + 1, kItems));
  };
  const auto visit = [&](const auto& body) {
    for (int round = 0; round < rounds; ++round) {
      const loader::MicroBatch micro = batch_of(round);
      const std::span batches(&micro, micro.tokens.empty() ? 0U : 1U);
      std::vector<model::MicroInput> inputs;
      for (const loader::MicroBatch& some : batches) inputs.push_back(instance.input(some));
      body(engine::SourceBatch{batches, 1, round * ranks + world().rank()}, inputs);
    }
  };
  BatchTotals totals{.items = kItems};
  source.begin(rounds * ranks);
  visit([&](const engine::SourceBatch& batch, std::vector<model::MicroInput>& inputs) {
    source.observe(batch, [&] { return std::span<const model::MicroInput>(inputs); });
  });
  source.finish(instance.groups(), totals, nullptr);
  EXPECT_EQ(items, (std::vector<std::int64_t>{4, 4, 1}));
  double loss = 0.0;
  visit([&](const engine::SourceBatch& batch, std::vector<model::MicroInput>& inputs) {
    source.fill(batch, inputs);
    for (const model::MicroInput& in : inputs) {
      const at::Tensor sums = engine::BatchVectorObjective(totals, kNames).observe(in, {}, {}).cpu();
      loss += sums[0].item<double>();
      EXPECT_EQ(sums[1].item<double>(), kItems + 1);
      EXPECT_EQ(sums[2].item<double>(), 1.0);
    }
  });
  world().host().all_reduce(&loss, 1, DType::f64);
  EXPECT_EQ(loss, 4 * 1 + 4 * 2 + 1 * 3);
}

}  // namespace
}  // namespace qft::parallel::testing

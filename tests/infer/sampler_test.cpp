#include "qft/infer/sampler.h"

#include "qft/core/error.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace qft::infer {
namespace {

std::vector<float> logits() {
  return {1.0f, 3.0f, -2.0f, 2.0f, 0.5f};
}

TEST(Sampler, GreedyTakesTheLargestAfterThePenalty) {
  Sampler plain({.greedy = true});
  auto l = logits();
  EXPECT_EQ(plain.next(l, {}), 1);
  Sampler penalised({.greedy = true, .repetition_penalty = 2.0});
  l = logits();
  const std::vector<std::int32_t> seen = {1, 2, 1};
  EXPECT_EQ(penalised.next(l, seen), 3);
  EXPECT_FLOAT_EQ(l[1], 1.5f);   // positive logits are divided, once per token however often the token occurred
  EXPECT_FLOAT_EQ(l[2], -4.0f);  // negative logits are multiplied
}

TEST(Sampler, ProbabilitiesFollowTemperature) {
  const Sampler s({.temperature = 0.5});
  auto l = logits();
  const auto c = s.candidates(l, {});
  ASSERT_EQ(c.ids.size(), 5u);
  EXPECT_EQ(c.ids[0], 1);
  EXPECT_NEAR(c.probabilities[0] / c.probabilities[1], std::exp((3.0 - 2.0) / 0.5), 1e-9);
  double sum = 0;
  for (const double p : c.probabilities) sum += p;
  EXPECT_NEAR(sum, 1.0, 1e-12);
}

TEST(Sampler, TopKThenTopP) {
  auto l = logits();
  auto c = Sampler({.top_k = 2}).candidates(l, {});
  EXPECT_EQ(c.ids, (std::vector<std::int32_t>{1, 3}));
  l = logits();
  c = Sampler({.top_p = 0.5}).candidates(l, {});  // the first token has 0.62 of the mass
  EXPECT_EQ(c.ids, (std::vector<std::int32_t>{1}));
  EXPECT_DOUBLE_EQ(c.probabilities[0], 1.0);
  l = logits();
  c = Sampler({.top_p = 0.8}).candidates(l, {});
  EXPECT_EQ(c.ids.size(), 2u);
}

TEST(Sampler, DrawsFollowTheDistributionAndTheSeed) {
  std::map<std::int32_t, int> count;
  Sampler a({.seed = 5}), b({.seed = 5});
  for (int i = 0; i < 20000; ++i) {
    auto la = logits(), lb = logits();
    const auto id = a.next(la, {});
    ASSERT_EQ(id, b.next(lb, {}));
    ++count[id];
  }
  auto l = logits();
  const auto c = Sampler({}).candidates(l, {});
  for (std::size_t i = 0; i < c.ids.size(); ++i)
    EXPECT_NEAR(count[c.ids[i]] / 20000.0, c.probabilities[i], 0.012) << "token " << c.ids[i];
}

TEST(Sampler, EachStreamHasDrawsOfItsOwn) {
  const auto draws = [](const SamplerOptions& options) {
    Sampler s(options);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 64; ++i) {
      auto l = logits();
      ids.push_back(s.next(l, {}));
    }
    return ids;
  };
  EXPECT_EQ(draws({.seed = 5, .stream = 3}), draws({.seed = 5, .stream = 3}));
  EXPECT_EQ(draws({.seed = 5}), draws({.seed = 5, .stream = 0}));
  EXPECT_NE(draws({.seed = 5, .stream = 3}), draws({.seed = 5, .stream = 4}));
  EXPECT_NE(draws({.seed = 5, .stream = 1ULL << 32}), draws({.seed = 5, .stream = 1}));
  EXPECT_NE(draws({.seed = 3, .stream = 5}), draws({.seed = 5, .stream = 3}));
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(Sampler({.temperature = 0.0}), ConfigError);
  EXPECT_NO_THROW(Sampler({.greedy = true, .temperature = 0.0}));
  EXPECT_THROW(Sampler({.top_k = -1}), ConfigError);
  EXPECT_THROW(Sampler({.top_p = 0.0}), ConfigError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0.0}), ConfigError);
}

}  // namespace
}  // namespace qft::infer

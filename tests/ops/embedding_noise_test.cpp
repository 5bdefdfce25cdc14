#include "qft/ops/embedding.h"
#include "qft/ops/generic.h"

#include <cmath>

#include "ops_support.h"
#include <ATen/TensorOperators.h>

namespace qft::ops {
namespace {

using namespace testing;

constexpr DropoutKey kNoiseKey = noise_key(42, 9);

/// Rows of samples with these lengths and ids.
NoisyRows rows_of(const std::vector<std::pair<std::int32_t, std::int64_t>>& samples) {
  std::vector<std::int32_t> positions, lengths;
  std::vector<std::int64_t> ids;
  for (const auto& [length, id] : samples)
    for (std::int32_t t = 0; t < length; ++t) positions.push_back(t), lengths.push_back(length), ids.push_back(id);
  const at::Tensor sample_ids = zeros({static_cast<std::int64_t>(ids.size())}, at::kLong);
  for (std::size_t i = 0; i < ids.size(); ++i) sample_ids[static_cast<std::int64_t>(i)] = ids[i];
  return {{sample_ids, int32s(positions)}, int32s(lengths)};
}

at::Tensor noise(const NoisyRows& rows, std::int64_t width, double alpha, const DropoutKey& key = kNoiseKey,
                 at::ScalarType dtype = at::kDouble) {
  const at::Tensor x = zeros({rows.identity.positions.size(0), width}, dtype);
  add_embedding_noise(x, key, rows, alpha);
  return x;
}

TEST(EmbeddingNoise, FollowsItsDefinition) {
  const NoisyRows rows = rows_of({{3, 3}, {1, (std::int64_t{7} << 32) + 5}, {2, 9}});
  for (const at::ScalarType dtype : kDtypes)
    for (const std::int64_t width : {1, 4, 30, 67, 576}) {
      const at::Tensor actual = noise(rows, width, 5.0, kNoiseKey, dtype).to(at::kDouble),
                       expected = zeros(actual.sizes(), at::kDouble);
      for (std::int64_t t = 0; t < actual.size(0); ++t) {
        const auto id = static_cast<std::uint64_t>(rows.identity.sample_ids[t].item<std::int64_t>());
        const double largest = 5.0 / std::sqrt(rows.lengths[t].item<double>() * static_cast<double>(width));
        for (std::int64_t f = 0; f < width; ++f) {
          const PhiloxCounter words =
              philox({static_cast<std::uint32_t>(f / 8), static_cast<std::uint32_t>(rows.identity.positions[t].item<int>()),
                      static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                     kNoiseKey.philox_key());
          const std::uint32_t word = words[static_cast<std::size_t>(f % 8 / 2)], half = f % 2 == 0 ? word & 0xFFFF : word >> 16;
          expected[t][f] = largest * ((2.0 * half + 1.0) / 65536.0 - 1.0);
        }
      }
      expect_close(actual, expected, tolerance(dtype), "noise");
    }
}

TEST(EmbeddingNoise, IsUniformAndAccumulates) {
  const NoisyRows rows = rows_of({{400, 1}});
  const at::Tensor u = noise(rows, 1000, 1.0) * std::sqrt(400.0 * 1000.0);
  const double count = static_cast<double>(u.numel());
  EXPECT_LT(u.abs().max().item<double>(), 1.0);
  EXPECT_GT(u.abs().max().item<double>(), 0.9999);
  EXPECT_NEAR(u.mean().item<double>(), 0.0, 5 / std::sqrt(3 * count));
  EXPECT_NEAR(u.pow(2).mean().item<double>(), 1.0 / 3.0, 5 * std::sqrt(4.0 / 45.0 / count));
  const at::Tensor x = randn({400, 1000}, at::kDouble, 1), before = x.clone();
  add_embedding_noise(x, kNoiseKey, rows, 1.0);
  expect_close(x, before + noise(rows, 1000, 1.0), tolerance(at::kDouble), "sum");
}

TEST(EmbeddingNoise, DependsOnTheRowAndOnTheStepButNotOnPacking) {
  const at::Tensor together = noise(rows_of({{3, 8}, {2, 2}, {1, 5}}), 50, 5.0), alone = noise(rows_of({{2, 2}}), 50, 5.0);
  EXPECT_TRUE(together.narrow(0, 3, 2).equal(alone));
  EXPECT_FALSE(alone[0].equal(alone[1]));
  EXPECT_FALSE(alone.equal(noise(rows_of({{2, 3}}), 50, 5.0)));
  EXPECT_FALSE(alone.equal(noise(rows_of({{2, 2}}), 50, 5.0, noise_key(42, 10))));
  EXPECT_FALSE(alone.equal(noise(rows_of({{2, 2}}), 50, 5.0, noise_key(43, 9))));
}

TEST(EmbeddingNoise, LeavesRowsBeyondTheSamplesAlone) {
  const at::Tensor x = zeros({5, 16}, at::kFloat);
  add_embedding_noise(x, kNoiseKey, rows_of({{3, 1}}), 5.0);
  EXPECT_TRUE(x.narrow(0, 3, 2).eq(0).all().item<bool>());
  EXPECT_FALSE(x.narrow(0, 2, 1).eq(0).any().item<bool>());
}

}  // namespace
}  // namespace qft::ops

#include "qft/ops/dropout.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include <cmath>

#include "ops_support.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace qft::ops {
namespace {

using namespace testing;

TEST(Philox, MatchesTheRandom123TestVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

constexpr DropoutKey kKey{42, 9, 5, 2};

/// Rows of samples `ids`, with positions that count up within each run of the same id.
RowIdentity rows_of(const std::vector<std::int64_t>& ids) {
  std::vector<std::int32_t> positions;
  at::Tensor sample_ids = zeros({static_cast<std::int64_t>(ids.size())}, at::kLong);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    positions.push_back(i > 0 && ids[i] == ids[i - 1] ? positions.back() + 1 : 0);
    sample_ids[static_cast<std::int64_t>(i)] = ids[i];
  }
  return {sample_ids, int32s(positions)};
}

at::Tensor mask(const RowIdentity& rows, std::int64_t width, double p, const DropoutKey& key = kKey,
                at::ScalarType dtype = at::kFloat) {
  const at::Tensor ones = zeros({rows.positions.size(0), width}, dtype).fill_(1.0), out = empty(ones.sizes(), dtype);
  dropout_forward(ones, key, rows, p, out);
  return out;
}

/// A rank that shares a matrix sees some columns of its input.
TEST(Dropout, SomeFeaturesGetTheMaskOfTheWholeRow) {
  const RowIdentity rows = rows_of({3, 3, 8});
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor whole = mask(rows, 200, 0.4, kKey, dtype);
    for (const std::int64_t first : {0, 1, 7, 8, 12, 20, 83})
      for (const std::int64_t width : {1, 5, 8, 67, 117}) {
        DropoutKey key = kKey;
        key.first_feature = first;
        EXPECT_TRUE(mask(rows, width, 0.4, key, dtype).equal(whole.narrow(1, first, width)))
            << width << " features from " << first << " on, " << dtype;
      }
  }
}

TEST(Dropout, FollowsItsDefinition) {
  const RowIdentity rows = rows_of({3, 3, 3, (std::int64_t{7} << 32) + 5, 9});
  for (const at::ScalarType dtype : kDtypes) {
    for (const std::int64_t width : {1, 4, 30, 67, 576}) {
      const at::Tensor actual = mask(rows, width, 0.25, kKey, dtype).to(at::kDouble);
      for (std::int64_t t = 0; t < actual.size(0); ++t) {
        const auto id = static_cast<std::uint64_t>(rows.sample_ids[t].item<std::int64_t>());
        for (std::int64_t f = 0; f < width; ++f) {
          const PhiloxCounter words =
              philox({static_cast<std::uint32_t>(f / 8), static_cast<std::uint32_t>(rows.positions[t].item<int>()),
                      static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                     kKey.philox_key());
          const std::uint32_t word = words[static_cast<std::size_t>(f % 8 / 2)];
          const bool kept = (f % 2 == 0 ? word & 0xFFFF : word >> 16) >= 0x4000;
          ASSERT_NEAR(actual[t][f].item<double>(), kept ? 4.0 / 3.0 : 0.0, 4e-3) << "row " << t << ", feature " << f;
        }
      }
    }
  }
}

TEST(Dropout, KeepsTheShareAndTheMean) {
  const at::Tensor m = mask(rows_of(std::vector<std::int64_t>(400, 1)), 1000, 0.1);
  const double count = static_cast<double>(m.numel()), kept = m.ne(0).sum().item<double>() / count;
  EXPECT_NEAR(kept, 0.9, 5 * std::sqrt(0.09 / count));
  EXPECT_NEAR(m.mean().item<double>(), 1.0, 5 * std::sqrt(0.09 / count) / 0.9);
}

TEST(Dropout, DoesNotDependOnPacking) {
  const at::Tensor together = mask(rows_of({8, 8, 8, 2, 2, 5}), 50, 0.5);
  const at::Tensor alone = mask(rows_of({2, 2}), 50, 0.5);
  EXPECT_TRUE(together.narrow(0, 3, 2).equal(alone));
}

TEST(Dropout, DependsOnEveryPartOfTheKey) {
  const RowIdentity rows = rows_of({1, 1, 2});
  const at::Tensor m = mask(rows, 64, 0.5);
  EXPECT_TRUE(m.equal(mask(rows, 64, 0.5)));
  EXPECT_FALSE(m[0].equal(m[1]));  // position
  EXPECT_FALSE(m[0].equal(m[2]));  // sample
  for (const DropoutKey& other : {DropoutKey{43, 9, 5, 2}, DropoutKey{42, 10, 5, 2}, DropoutKey{42, 9, 6, 2},
                                  DropoutKey{42, 9, 5, 3}, DropoutKey{42 + (1ULL << 40), 9, 5, 2}})
    EXPECT_FALSE(m.equal(mask(rows, 64, 0.5, other)));
}

TEST(Dropout, BackwardUsesTheSameMaskAndAdds) {
  const RowIdentity rows = rows_of({1, 1, 1, 4});
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor g = randn({4, 37}, dtype, 1), out = randn({4, 37}, dtype, 2), before = out.clone();
    const at::Tensor x = randn({4, 37}, dtype, 3), again = empty({4, 37}, dtype), alone = before.clone();
    dropout_backward({x, again, g, out}, kKey, rows, 0.3);
    expect_close(out, before.to(at::kDouble) + g.to(at::kDouble) * mask(rows, 37, 0.3, kKey, at::kDouble), tolerance(dtype),
                 "gradient");
    expect_close(again, x.to(at::kDouble) * mask(rows, 37, 0.3, kKey, at::kDouble), tolerance(dtype), "input");
    dropout_backward({{}, {}, g, alone}, kKey, rows, 0.3);
    EXPECT_TRUE(alone.equal(out));
  }
}

TEST(Dropout, MayWorkInPlaceAndAgreesWithTheGenericPath) {
  const RowIdentity rows = rows_of({1, 1, 1, 4});
  for (const at::ScalarType dtype : kDtypes) {
    const at::Tensor x = randn({4, 93}, dtype, 1), expected = generic::dropout(x, kKey, rows, 0.4);
    dropout_forward(x, kKey, rows, 0.4, x);
    expect_close(x, expected, tolerance(dtype), "dropped");
    EXPECT_TRUE(x.eq(0).equal(expected.eq(0)));
  }
}

TEST(Dropout, DropsSomethingAtAnyProbabilityAndNeverAll) {
  EXPECT_EQ(dropout_threshold(0.0), 0U);
  EXPECT_EQ(dropout_threshold(1e-9), 1U);
  EXPECT_EQ(dropout_threshold(0.5), 0x8000U);
  EXPECT_EQ(dropout_threshold(0.9999999), 0xFFFFU);
}

TEST(Dropout, RefusesAnImpossibleProbability) {
  const RowIdentity rows = rows_of({1});
  EXPECT_THROW(mask(rows, 4, 1.0), Error);
  EXPECT_THROW(mask(rows, 4, -0.1), Error);
}

}  // namespace
}  // namespace qft::ops

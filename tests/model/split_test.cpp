// Dimensions and heads divided among ranks, for all small numbers.
#include "qft/model/share.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config_error.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

TEST(Split, IsAsEvenAsGranulesAllow) {
  for (std::int64_t extent = 1; extent <= 40; ++extent)
    for (std::int64_t granule = 1; granule <= 9; ++granule)
      for (int ranks = 1; ranks <= 8; ++ranks) {
        const std::int64_t granules = (extent + granule - 1) / granule;
        if (granules < ranks) {
          EXPECT_TRUE(mentions(config_error([&] { split(extent, granule, {0, ranks}, "the columns"); }),
                               "at most " + std::to_string(granules)));
          continue;
        }
        std::int64_t end = 0, most = granules, least = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Extent mine = split(extent, granule, {rank, ranks}, "the columns");
          ASSERT_EQ(mine.begin, end);
          ASSERT_EQ(mine.begin % granule, 0);
          end = mine.end();
          const std::int64_t held = (mine.count + granule - 1) / granule;
          ASSERT_LE(held, most) << "the first ranks have more";
          if (rank == 0) least = held;
          most = held;
          ASSERT_GE(held, 1);
          ASSERT_LE(least - held, 1);
        }
        ASSERT_EQ(end, extent);
      }
}

TEST(Heads, AreComputedOnceByARankThatHoldsTheirKeyHead) {
  for (std::int64_t keys = 1; keys <= 8; ++keys)
    for (std::int64_t per = 1; per <= 6; ++per)
      for (int ranks = 1; ranks <= 16; ++ranks) {
        const Heads heads{.what = "the heads", .heads = keys * per, .key_heads = keys};
        const bool fits = keys >= ranks || (ranks % keys == 0 && per >= ranks / keys);
        ASSERT_EQ(heads.fits(ranks), fits) << keys << " key heads, " << per << " heads each, " << ranks << " ranks";
        if (!fits) {
          EXPECT_TRUE(mentions(config_error([&] { heads.split({0, ranks}); }), "the heads"));
          continue;
        }
        std::int64_t next = 0;
        std::map<std::int64_t, std::set<int>> holders;
        for (int rank = 0; rank < ranks; ++rank) {
          const HeadShare mine = heads.split({rank, ranks});
          ASSERT_EQ(mine.heads.begin, next);
          next = mine.heads.end();
          ASSERT_GE(mine.heads.count, 1);
          ASSERT_LE(mine.heads.count, heads.split({0, ranks}).heads.count);
          for (std::int64_t h = mine.heads.begin; h < mine.heads.end(); ++h) {
            ASSERT_GE(h / per, mine.key_heads.begin);
            ASSERT_LT(h / per, mine.key_heads.end());
          }
          ASSERT_EQ(mine.holder, static_cast<int>(holders[mine.key_heads.begin].size()));
          holders[mine.key_heads.begin].insert(rank);
          // One key head with some of its heads, or whole key heads.
          ASSERT_TRUE(mine.holders == 1 ? mine.heads.count == mine.key_heads.count * per : mine.key_heads.count == 1);
        }
        ASSERT_EQ(next, keys * per);
        for (const auto& [key, held] : holders)
          ASSERT_EQ(static_cast<int>(held.size()), heads.split({*held.begin(), ranks}).holders);
      }
  const Heads six{.heads = 6, .key_heads = 6}, twelve{.heads = 12, .key_heads = 2};
  const auto counts = [](const Heads& heads, int ranks) {
    std::vector<std::int64_t> list;
    for (int rank = 0; rank < ranks; ++rank) list.push_back(heads.split({rank, ranks}).heads.count);
    return list;
  };
  EXPECT_EQ(counts(six, 4), (std::vector<std::int64_t>{2, 2, 1, 1}));
  EXPECT_EQ(counts(twelve, 8), (std::vector<std::int64_t>{2, 2, 1, 1, 2, 2, 1, 1}));
}

}  // namespace
}  // namespace qft::model

// Heads of context ranks: each head is on one rank, in order and evenly, with the key head that serves it.
#include "qft/model/sequence_heads.h"

#include <gtest/gtest.h>

namespace qft::model {
namespace {

TEST(SequenceHeads, HaveEachHeadOnceWithItsKeyHead) {
  for (const int key_heads : {1, 2, 3, 6})
    for (const int group : {1, 2, 3, 5})
      for (int ranks = 2; ranks <= key_heads * group; ++ranks) {
        const std::int64_t heads = key_heads * group;
        std::int64_t next = 0, keys = 0;
        bool repeats = false;
        for (int rank = 0; rank < ranks; ++rank) {
          const SequenceShare share = SequenceShare::split(heads, key_heads, {rank, ranks});
          ASSERT_EQ(share.ranks.size(), static_cast<std::size_t>(ranks));
          const SequenceHeads& mine = share.mine();
          EXPECT_EQ(mine.heads.begin, next);
          EXPECT_TRUE(mine.heads.count == heads / ranks || mine.heads.count == heads / ranks + 1);
          ASSERT_EQ(mine.heads.count % mine.num_key_heads(), 0);
          const std::int64_t run = mine.heads.count / mine.num_key_heads();
          for (std::int64_t i = 0; i < mine.heads.count; ++i)
            EXPECT_EQ(mine.key_heads[static_cast<std::size_t>(i / run)], (mine.heads.begin + i) / group);
          next = mine.heads.end();
          keys += mine.num_key_heads();
          repeats = share.repeats_keys;
        }
        EXPECT_EQ(next, heads);
        EXPECT_EQ(repeats, keys > key_heads);
      }
}

TEST(SequenceHeads, AreNotDealtToOneRank) {
  EXPECT_FALSE(SequenceShare::split(6, 2, {}).any());
}

TEST(SequenceHeads, CountTheColumnsThatAreSent) {
  const SequenceShare share = SequenceShare::split(6, 2, {0, 4});  // 2, 2, 1 and 1 heads; the second rank's have two key heads
  EXPECT_EQ(share.ranks[1].key_heads, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(share.mine().columns(8, false), 16);
  EXPECT_EQ(share.mine().columns(8, true), 8);
  EXPECT_EQ(share.columns_of_all(8, 10), 6 * 8 + 5 * 10);
}

}  // namespace
}  // namespace qft::model
